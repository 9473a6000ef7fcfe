#include <steadygrad/core/data/text.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <steadygrad/core/data/markov.hpp>
#include <steadygrad/core/data/utf8.hpp>
#include <steadygrad/core/error.hpp>
#include <string>
#include <vector>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using test::message_of;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> numbers(const Tensor& ids) {
  const auto span = ids.data<std::int64_t>();
  return {span.begin(), span.end()};
}

TEST(Utf8, OneToFourBytesGoBothWays) {
  const std::string text = "A\u00df\u20ac\U0001F600";
  const std::vector<char32_t> points = decode_utf8(text);
  EXPECT_THAT(points, ElementsAre(U'A', U'\u00df', U'\u20ac', U'\U0001F600'));
  std::string back;
  for (const char32_t c : points) append_utf8(back, c);
  EXPECT_EQ(back, text);
  // The ends of each length's range.
  for (const char32_t c :
       {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xD7FFU, 0xE000U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string one;
    append_utf8(one, c);
    EXPECT_THAT(decode_utf8(one), ElementsAre(c));
  }
}

TEST(Utf8, EveryMalformedSequenceIsNamedByItsOffset) {
  for (const std::string bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE2\x82", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xE2\x28\xA1", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    const std::string message =
        message_of<IoError>([&] { (void)decode_utf8("ab" + bad, "x.txt"); });
    EXPECT_THAT(message, AllOf(HasSubstr("'x.txt'"), HasSubstr("at byte 2 ")));
  }
  std::string text;
  EXPECT_THROW(append_utf8(text, 0xD800), Error);
  EXPECT_THROW(append_utf8(text, 0x110000), Error);
}

TEST(Vocabulary, NumbersCharactersByCodePoint) {
  const Vocabulary v = Vocabulary::characters_of("ba\u20acab\n");
  EXPECT_EQ(v.size(), 4);
  EXPECT_THAT(v.encode("ab\u20ac\n"), ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(v.decode(v.encode("\u20aca\nb")), "\u20aca\nb");
  const Vocabulary again = Vocabulary::from_characters(v.characters());
  EXPECT_EQ(again.encode("ba"), v.encode("ba"));
  EXPECT_THROW((void)Vocabulary::from_characters({U'b', U'a'}), Error);
}

TEST(Vocabulary, AnUnknownCharacterOrNumberIsNamed) {
  const Vocabulary v = Vocabulary::characters_of("abc");
  EXPECT_THAT(message_of<Error>([&] { (void)v.encode("ab\u00e4"); }),
              AllOf(HasSubstr("'\u00e4' (U+00E4)"), HasSubstr("position 2")));
  EXPECT_THAT(message_of<Error>([&] { (void)v.encode("\n"); }), HasSubstr("character U+000A at"));
  const std::vector<std::int64_t> ids{0, 3};
  EXPECT_THAT(message_of<Error>([&] { (void)v.decode(ids); }),
              AllOf(HasSubstr("position 1"), HasSubstr("got 3")));
  const std::vector<std::int64_t> below{-1};
  EXPECT_THROW((void)v.decode(below), Error);
}

TEST(Vocabulary, BytesTakeAnything) {
  const Vocabulary v = Vocabulary::bytes();
  const std::string any("\xFF\x00z", 3);
  EXPECT_EQ(v.size(), 256);
  EXPECT_THAT(v.encode(any), ElementsAre(255, 0, 122));
  EXPECT_EQ(v.decode(v.encode(any)), any);
}

TEST(Text, SplitsAtTheEnd) {
  const Text text = make_text("abcdefghij", {.validation = 0.3, .context = 2});
  EXPECT_THAT(numbers(text.train), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(numbers(text.validation), ElementsAre(7, 8, 9));
  EXPECT_EQ(text.vocabulary.size(), 10);
  const Text bytes =
      make_text("\xFF\xFE\xFF\xFE", {.unit = TextUnit::Byte, .validation = 0.5, .context = 1});
  EXPECT_THAT(numbers(bytes.train), ElementsAre(255, 254));
}

TEST(Text, TooShortForTheContextIsAnErrorThatNamesTheLeast) {  // CASES DA-08
  const TextOptions o{.validation = 0.1, .context = 8};
  const auto refusal = [](const std::string& text, const TextOptions& options) {
    return message_of<ShapeError>([&] { (void)make_text(text, options); });
  };
  EXPECT_THAT(refusal("", o), AllOf(HasSubstr("0 tokens"), HasSubstr("at least 9")));
  EXPECT_THAT(refusal("abcde", o), AllOf(HasSubstr("the whole"), HasSubstr("5 tokens")));
  EXPECT_THAT(refusal("abcdefghi", o), AllOf(HasSubstr("the training part"), HasSubstr("9")));
  EXPECT_THAT(refusal(std::string(84, 'x'), o), HasSubstr("the validation part"));
  EXPECT_THAT(refusal("abcdefghijklmnop", {.validation = 1e-6, .context = 8}),
              AllOf(HasSubstr("the validation part"), HasSubstr("0 tokens")));
  EXPECT_EQ(make_text(std::string(90, 'x'), o).validation.numel(), 9);
}

TEST(Text, RefusesOptionsOutOfRange) {
  EXPECT_THROW((void)make_text("abcdef", {.context = 0}), Error);
  EXPECT_THROW((void)make_text("abcdef", {.validation = 0.0, .context = 1}), Error);
  EXPECT_THROW((void)make_text("abcdef", {.validation = 1.0, .context = 1}), Error);
}

TEST(Text, OfAFileIsItsBytes) {
  const TemporaryDirectory directory;
  EXPECT_THROW((void)load_text(directory.path() / "none.txt"), IoError);
  EXPECT_THROW((void)load_text(directory.path()), IoError);
  const auto good = directory.write("b.txt", test::from_hex("61620d0a62c3a4"));
  const Text text = load_text(good, {.validation = 0.4, .context = 1});
  EXPECT_EQ(text.train.numel(), 4);
  EXPECT_EQ(text.vocabulary.decode(text.validation.data<std::int64_t>()), "b\u00e4");
  const auto bad = directory.write("c.txt", test::from_hex("6162ff"));
  EXPECT_THAT(message_of<IoError>([&] { (void)load_text(bad); }),
              AllOf(HasSubstr(bad.string()), HasSubstr("at byte 2 (0xFF)")));
}

/// Conditional entropy of a character after the two before it, from the counts in a text.
double measured_entropy(const std::string& text) {
  std::map<std::string, double> pairs;
  std::map<std::string, double> triples;
  for (std::size_t i = 2; i < text.size(); ++i) {
    ++pairs[text.substr(i - 2, 2)];
    ++triples[text.substr(i - 2, 3)];
  }
  double h = 0;
  for (const auto& [triple, count] : triples)
    h -= count * std::log(count / pairs[triple.substr(0, 2)]);
  return h / static_cast<double>(text.size() - 2);
}

TEST(MarkovText, HasTheEntropyItSays) {
  const MarkovText markov = make_markov_text({.length = 200'000, .alphabet = 5});
  EXPECT_EQ(markov.text.size(), 200'000U);
  // 25 rows of 4 free numbers: counting biases by 50 / n; one standard error is about 0.002.
  EXPECT_NEAR(measured_entropy(markov.text), markov.entropy, 0.008);
  EXPECT_LT(markov.entropy, 0.8 * std::log(5.0));
  EXPECT_EQ(markov.text.find_first_not_of(" abcd"), std::string::npos);
}

TEST(MarkovText, IsAFunctionOfItsOptions) {
  const MarkovOptions o{.length = 1000, .alphabet = 7, .seed = 3};
  EXPECT_EQ(make_markov_text(o).text, make_markov_text(o).text);
  EXPECT_EQ(make_markov_text({.length = 10, .alphabet = 7, .seed = 3}).text,
            make_markov_text(o).text.substr(0, 10));
  EXPECT_NE(make_markov_text({.length = 1000, .alphabet = 7, .seed = 4}).text,
            make_markov_text(o).text);
  EXPECT_THROW((void)make_markov_text({.length = 0}), Error);
  EXPECT_THROW((void)make_markov_text({.alphabet = 1}), Error);
  EXPECT_THROW((void)make_markov_text({.alphabet = 28}), Error);
}

}  // namespace
}  // namespace steady
