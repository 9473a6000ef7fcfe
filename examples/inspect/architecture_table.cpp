#include <array>

#include "examples/inspect/architectures.hpp"

namespace steady::examples::inspect {
namespace {

// Sources without a repository are files of huggingface/transformers, under
// src/transformers/models. Narrower fingerprints stand before wider ones.
constexpr std::array Table = {
    Architecture{
        .name = "GPT-2",
        .model_types = "gpt2 gpt_bigcode gpt_neo",
        .kind = Kind::LayerNorm,
        .placement = Placement::Pre,
        .eps_keys = "layer_norm_epsilon",
        .eps = 1e-5,
        .names = "*h.*.ln_1.weight *h.*.attn.c_attn.weight",
        .source = "gpt2/modeling_gpt2.py: GPT2Block has nn.LayerNorm ln_1, ln_2; ln_f at the end"},
    Architecture{.name = "BERT",
                 .model_types = "bert roberta xlm-roberta electra distilbert camembert deberta-v2",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Post,
                 .eps_keys = "layer_norm_eps",
                 .eps = 1e-12,
                 .names = "*encoder.layer.*.attention.output.LayerNorm.* "
                          "*encoder.layer.*.attention.self.query.weight",
                 .source = "bert/modeling_bert.py: BertSelfOutput and BertOutput return "
                           "LayerNorm(dropout(dense(x)) + input)"},
    Architecture{.name = "Gemma 3",
                 .model_types = "gemma3 gemma3_text",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Sandwich,
                 .eps_keys = "rms_norm_eps",
                 .eps = 1e-6,
                 .unit_offset = 1.0,
                 .names = "*layers.*.pre_feedforward_layernorm.weight "
                          "*layers.*.self_attn.q_norm.weight",
                 .source = "gemma3/modeling_gemma3.py: Gemma3RMSNorm multiplies by 1 + weight; "
                           "norms of queries and keys per head"},
    Architecture{.name = "Gemma 2",
                 .model_types = "gemma2",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Sandwich,
                 .eps_keys = "rms_norm_eps",
                 .eps = 1e-6,
                 .unit_offset = 1.0,
                 .names = "*layers.*.pre_feedforward_layernorm.weight "
                          "*layers.*.post_feedforward_layernorm.weight",
                 .source = "gemma2/modeling_gemma2.py: Gemma2RMSNorm multiplies by 1 + weight; "
                           "norms before and after every branch"},
    Architecture{.name = "Gemma",
                 .model_types = "gemma",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "rms_norm_eps",
                 .eps = 1e-6,
                 .unit_offset = 1.0,
                 .source = "gemma/modeling_gemma.py: GemmaRMSNorm multiplies by 1 + weight"},
    Architecture{.name = "OLMo 2",
                 .model_types = "olmo2",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Output,
                 .eps_keys = "rms_norm_eps",
                 .eps = 1e-5,
                 .names = "*layers.*.post_feedforward_layernorm.weight "
                          "*layers.*.self_attn.q_norm.weight !*layers.*.input_layernorm.weight",
                 .source = "olmo2/modeling_olmo2.py: Olmo2DecoderLayer normalizes the output of "
                           "attention and MLP; q_norm, k_norm span the whole projection"},
    Architecture{.name = "OLMo",
                 .model_types = "olmo",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Pre,
                 .eps = 1e-5,
                 .without_tensors = "model.layers.*.input_layernorm "
                                    "model.layers.*.post_attention_layernorm model.norm",
                 .source = "olmo/modeling_olmo.py: OlmoLayerNorm is F.layer_norm(x, shape, None, "
                           "None, eps=1e-5)"},
    Architecture{.name = "Qwen3",
                 .model_types = "qwen3 qwen3_moe",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "rms_norm_eps",
                 .eps = 1e-6,
                 .names = "*layers.*.self_attn.q_norm.weight *layers.*.input_layernorm.weight "
                          "*layers.*.post_attention_layernorm.weight *mlp.gate_proj.weight",
                 .source =
                     "qwen3/modeling_qwen3.py: Qwen3RMSNorm; q_norm, k_norm of size head_dim, "
                     "before the rotation"},
    Architecture{.name = "MiniMind",
                 .model_types = "minimind",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "rms_norm_eps",
                 .eps = 1e-5,
                 .source = "jingyaogong/minimind model/model_minimind.py: RMSNorm as "
                           "input_layernorm, post_attention_layernorm, q_norm, k_norm"},
    Architecture{.name = "Cohere",
                 .model_types = "cohere cohere2",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Parallel,
                 .eps_keys = "layer_norm_eps",
                 .eps = 1e-5,
                 .names = "*layers.*.input_layernorm.weight *layers.*.mlp.gate_proj.weight "
                          "!*layers.*.post_attention_layernorm.weight",
                 .source =
                     "cohere/modeling_cohere.py: CohereLayerNorm subtracts the mean and has no "
                     "bias; attention and MLP in parallel behind one norm"},
    Architecture{
        .name = "Llama",
        .model_types = "llama mistral mixtral qwen2 qwen2_moe phi3 deepseek_v2 deepseek_v3 "
                       "yi internlm2 granite smollm3",
        .kind = Kind::RmsNorm,
        .placement = Placement::Pre,
        .eps_keys = "rms_norm_eps",
        .eps = 1e-6,
        .names = "*layers.*.input_layernorm.weight "
                 "*layers.*.post_attention_layernorm.weight *layers.*.mlp.*.weight "
                 "!*layers.*.input_layernorm.bias",
        .source = "llama/modeling_llama.py: LlamaRMSNorm; the same in mistral, qwen2, phi3, "
                  "deepseek"},
    Architecture{.name = "MPT",
                 .model_types = "mpt",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "layer_norm_epsilon",
                 .eps = 1e-5,
                 .names = "*blocks.*.norm_1.weight *blocks.*.attn.Wqkv.weight",
                 .source =
                     "mpt/modeling_mpt.py: MptBlock has nn.LayerNorm norm_1, norm_2 with bias "
                     "None"},
    Architecture{
        .name = "Falcon",
        .model_types = "falcon RefinedWeb RefinedWebModel",
        .kind = Kind::LayerNorm,
        .placement = Placement::Parallel,
        .eps_keys = "layer_norm_epsilon",
        .eps = 1e-5,
        .names = "*h.*.self_attention.query_key_value.weight *h.*.mlp.dense_h_to_4h.weight",
        .source = "falcon/modeling_falcon.py: FalconDecoderLayer has LayerNorm "
                  "input_layernorm, or ln_attn and ln_mlp"},
    Architecture{.name = "GPT-NeoX",
                 .model_types = "gpt_neox",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Parallel,
                 .eps_keys = "layer_norm_eps",
                 .eps = 1e-5,
                 .names = "*gpt_neox.layers.*.input_layernorm.weight",
                 .source = "gpt_neox/modeling_gpt_neox.py: GPTNeoXLayer has nn.LayerNorm "
                           "input_layernorm, post_attention_layernorm; use_parallel_residual"},
    Architecture{.name = "Phi",
                 .model_types = "phi",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Parallel,
                 .eps_keys = "layer_norm_eps",
                 .eps = 1e-5,
                 .names = "*layers.*.input_layernorm.bias *layers.*.self_attn.dense.weight",
                 .source =
                     "phi/modeling_phi.py: PhiDecoderLayer has one nn.LayerNorm, attention and "
                     "MLP in parallel"},
    Architecture{.name = "StableLM",
                 .model_types = "stablelm",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "layer_norm_eps",
                 .eps = 1e-5,
                 .names = "*layers.*.input_layernorm.bias *layers.*.mlp.gate_proj.weight",
                 .source = "stablelm/modeling_stablelm.py: StableLmDecoderLayer has nn.LayerNorm "
                           "under Llama's names"},
    Architecture{.name = "T5",
                 .model_types = "t5 mt5 umt5",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "layer_norm_epsilon",
                 .eps = 1e-6,
                 .names = "*block.*.layer.0.SelfAttention.q.weight",
                 .source =
                     "t5/modeling_t5.py: T5LayerNorm has no mean and no bias, in spite of its "
                     "name"},
    Architecture{.name = "Mamba",
                 .model_types = "mamba mamba2",
                 .kind = Kind::RmsNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "layer_norm_epsilon",
                 .eps = 1e-5,
                 .names = "*layers.*.mixer.in_proj.weight *layers.*.norm.weight",
                 .source = "mamba/modeling_mamba.py: MambaRMSNorm, though its eps is called "
                           "layer_norm_epsilon"},
    Architecture{.name = "DyT Transformer",
                 .model_types = "vit_dyt",
                 .kind = Kind::DynamicTanh,
                 .placement = Placement::Pre,
                 .names = "*blocks.*.norm1.alpha",
                 .source = "Zhu et al. 2025, Transformers without Normalization; jiachenzhu/DyT "
                           "dynamic_tanh.py"},
    Architecture{.name = "ViT",
                 .model_types = "vit deit",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Pre,
                 .eps_keys = "layer_norm_eps",
                 .eps = 0.0,
                 .names = "*blocks.*.norm1.bias *blocks.*.attn.qkv.weight *patch_embed.proj.weight",
                 .source = "vit/modeling_vit.py (eps 1e-12); huggingface/pytorch-image-models "
                           "timm/models/vision_transformer.py (eps 1e-6): nn.LayerNorm"},
    Architecture{.name = "ConvNeXt",
                 .model_types = "convnext convnextv2",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Inside,
                 .eps = 1e-6,
                 .names = "*stages.*.dwconv.weight *stages.*.norm.weight",
                 .source = "facebookresearch/ConvNeXt models/convnext.py: LayerNorm over the "
                           "channels, eps=1e-6, behind every depthwise convolution"},
    Architecture{.name = "ConvNeXt (timm)",
                 .model_types = "",
                 .kind = Kind::LayerNorm,
                 .placement = Placement::Inside,
                 .eps = 1e-6,
                 .names = "*stages.*.blocks.*.conv_dw.weight *stages.*.blocks.*.norm.weight",
                 .source =
                     "huggingface/pytorch-image-models timm/models/convnext.py: LayerNorm over "
                     "the channels"},
    Architecture{.name = "ResNet",
                 .model_types = "resnet",
                 .kind = Kind::BatchNorm,
                 .placement = Placement::Inside,
                 .eps = 1e-5,
                 .names = "*layer1.0.bn1.running_var *layer4.0.conv1.weight",
                 .source =
                     "pytorch/vision torchvision/models/resnet.py: nn.BatchNorm2d behind every "
                     "convolution, eps of PyTorch"},
    Architecture{.name = "MobileNetV2",
                 .model_types = "mobilenet_v2",
                 .kind = Kind::BatchNorm,
                 .placement = Placement::Inside,
                 .eps = 1e-5,
                 .names = "*features.*.conv.0.1.running_var",
                 .source =
                     "pytorch/vision torchvision/models/mobilenetv2.py: nn.BatchNorm2d, eps of "
                     "PyTorch"},
    Architecture{.name = "MobileNetV3",
                 .model_types = "mobilenet_v3",
                 .kind = Kind::BatchNorm,
                 .placement = Placement::Inside,
                 .eps = 1e-3,
                 .names = "*features.*.block.0.1.running_var *features.*.block.*.fc1.weight",
                 .source = "pytorch/vision torchvision/models/mobilenetv3.py: nn.BatchNorm2d with "
                           "eps=0.001"},
};

}  // namespace

std::span<const Architecture> architectures() { return Table; }

}  // namespace steady::examples::inspect
