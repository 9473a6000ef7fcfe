// Measures of the report on numbers whose answer is known.
#include "examples/study/results.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/run_log.hpp>

#include "tests/core/data/files.hpp"
#include "tests/support/message_of.hpp"

namespace steady::examples {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;

Profile geometric(double first, double factor, std::int64_t layers) {
  Profile profile;
  for (std::int64_t i = 0; i < layers; ++i) {
    profile.layer.push_back(i + 1);
    profile.value.push_back(first * std::pow(factor, static_cast<double>(i)));
  }
  return profile;
}

TEST(Profile, GrowthOfAGeometricSequenceIsItsFactor) {
  for (const double factor : {0.5, 1.0, 1.788, 10.0}) {
    EXPECT_NEAR(growth_per_layer(geometric(3e-5, factor, 20), 1, 20), factor, 1e-12 * factor);
  }
}

TEST(Profile, GrowthLooksAtTheLayersItIsGivenAlone) {
  Profile profile = geometric(1, 2, 10);
  profile.value.front() = 1e9;
  profile.value.back() = 1e-9;
  EXPECT_NEAR(growth_per_layer(profile, 2, 9), 2, 1e-12);
}

TEST(Profile, GrowthLeavesOutWhatHasNoLogarithm) {
  Profile profile = geometric(1, 3, 8);
  profile.value[1] = 0;
  profile.value[3] = INFINITY;
  profile.value[5] = NAN;
  EXPECT_NEAR(growth_per_layer(profile, 1, 8), 3, 1e-12);
  EXPECT_TRUE(std::isnan(growth_per_layer(profile, 1, 2)));
  EXPECT_TRUE(std::isnan(growth_per_layer({}, 0, 100)));
}

TEST(Profile, FirstToLastNeedsTwoLayers) {
  EXPECT_EQ(geometric(8, 0.5, 4).first_to_last(), 8.0);
  EXPECT_TRUE(std::isnan(geometric(8, 0.5, 1).first_to_last()));
  EXPECT_TRUE(std::isnan(Profile{}.first_to_last()));
}

// Yang et al. 2019 give these to three digits, and pi / (pi - 1) as the limit.
TEST(BatchNormGrowth, IsThatOfThePaper) {
  EXPECT_NEAR(batch_norm_growth(8), 1.788, 5e-4);
  EXPECT_NEAR(batch_norm_growth(32), 1.522, 5e-4);
  EXPECT_NEAR(batch_norm_growth(1e7), std::numbers::pi / (std::numbers::pi - 1), 1e-6);
}

/// A log made by hand: two layers of two weights each, a norm and a head, at two steps.
class HandWritten : public testing::Test {
 protected:
  void SetUp() override {
    RunLog log(directory_.path() / "run.h5");
    for (const std::int64_t step : {0, 5}) {
      const auto at = static_cast<double>(step);
      const auto add = [&](const SeriesPath& path, double count, double rms) {
        log.append(path, step, {{"count", count}, {"rms", rms + at}});
      };
      add({"parameters", "stage10.linear.weight", "gradient"}, 10, 7);
      add({"parameters", "stage2.linear.weight", "gradient"}, 30, 3);
      add({"parameters", "stage2.extra.weight", "gradient"}, 10, 5);
      add({"parameters", "stage2.linear.bias", "gradient"}, 10, 100);
      add({"parameters", "stage2.norm.weight", "gradient"}, 10, 100);
      add({"parameters", "layers.2.ln_1.weight", "gradient"}, 10, 100);
      add({"parameters", "head.weight", "gradient"}, 10, 100);
      add({"parameters", "stage2.linear.weight", "update"}, 10, 100);
      add({"layers", "stage2", "output"}, 6, 2);
      add({"layers", "stage10", "output"}, 6, 4);
      add({"layers", "stage2.linear", "output"}, 6, 100);
      add({"layers", "stage2.linear", "output_gradient"}, 6, 2);
      add({"layers", "stage10.conv", "output_gradient"}, 8, 3);
      add({"layers", "stage2", "output_gradient"}, 6, 100);
      log.append({"training", "step"}, step, {{"loss", 1 + at}});
    }
    log.set("status", std::string("trained"));
    log.set("final_loss", 0.25);
    log.set("diverged_at", std::int64_t{3});
    log.close();
    result_.run = read_run(directory_.path() / "run.h5");
  }
  test::TemporaryDirectory directory_;
  Result result_;
};

TEST_F(HandWritten, GradientsArePooledByLayerWithoutNormsBiasesAndHead) {
  const Profile first = result_.weight_gradients(0);
  EXPECT_THAT(first.layer, ElementsAre(2, 10));
  EXPECT_THAT(first.value,
              ElementsAre(DoubleNear(std::sqrt((30 * 9 + 10 * 25) / 40.0), 1e-12), DoubleEq(7)));
  EXPECT_THAT(result_.weight_gradients(1).value.back(), DoubleEq(12));
  EXPECT_THAT(result_.weight_gradients(2).layer, ElementsAre());
  EXPECT_THAT(result_.sampled_steps(), ElementsAre(0, 5));
}

TEST_F(HandWritten, ActivationsAreTheOutputsOfLayersAndNotOfTheirParts) {
  EXPECT_THAT(result_.activations(0).layer, ElementsAre(2, 10));
  EXPECT_THAT(result_.activations(1).value, ElementsAre(DoubleEq(7), DoubleEq(9)));
}

TEST_F(HandWritten, FlowIsTheSquaredNormIntoTheLinearMaps) {
  const Profile flow = result_.squared_flow();
  EXPECT_THAT(flow.layer, ElementsAre(2, 10));
  EXPECT_THAT(flow.value, ElementsAre(DoubleEq(6 * 4), DoubleEq(8 * 9)));
}

TEST_F(HandWritten, ResultsAreNumbersTextOrAbsent) {
  EXPECT_EQ(result_.number("final_loss"), 0.25);
  EXPECT_EQ(result_.number("diverged_at"), 3.0);
  EXPECT_TRUE(std::isnan(result_.number("status")));
  EXPECT_TRUE(std::isnan(result_.number("nothing")));
  EXPECT_EQ(result_.text("status"), "trained");
  EXPECT_EQ(result_.text("nothing"), "");
  EXPECT_THAT(result_.losses(), ElementsAre(1.0, 6.0));
}

TEST(StudyAnswer, DeepestTakesTheFirstSeedThatIsThere) {
  Answer answer;
  const auto add = [&](std::int64_t depth, std::uint64_t seed) {
    answer.results.push_back({.cell = {.depth = depth, .seed = seed}, .run = {}, .status = ""});
  };
  EXPECT_TRUE(answer.deepest().empty());
  add(2, 1);
  add(8, 2);
  add(8, 3);
  add(8, 2);
  ASSERT_EQ(answer.deepest().size(), 2U);
  EXPECT_EQ(answer.deepest()[1], &answer.results[3]);
}

TEST(StudyLabel, SaysWhatVaries) {
  Question q;
  q.vary = {"norm", "placement", "depth", "lr"};
  Cell cell{.norm = "layer", .placement = "post", .depth = 12, .lr = 1e-3};
  EXPECT_EQ(label(q, cell), "layer, post, depth 12, lr 0.001");
  EXPECT_EQ(label(q, cell, {"depth", "lr"}), "layer, post");
  cell.placement = "none";
  EXPECT_EQ(label(q, cell, {"depth", "lr"}), "layer");
}

TEST(StudyResults, ADirectoryWithoutAStudyIsOneClearError) {
  const test::TemporaryDirectory directory;
  for (const std::filesystem::path& path : {directory.path(), directory.path() / "missing"}) {
    EXPECT_EQ(testing_support::message_of([&] { (void)load_results(path); }),
              path.string() + ": no study is there (stability_study --out makes one)");
  }
}

}  // namespace
}  // namespace steady::examples
