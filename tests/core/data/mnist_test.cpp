#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/data/mnist.hpp>
#include <steadygrad/core/error.hpp>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using test::Bytes;
using test::gzip;
using test::idx;
using test::message_of;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Mnist : testing::Test {
  TemporaryDirectory directory;
  Bytes images = idx(0x08, {10, 2, 2}, 40);
  Bytes labels = idx(0x08, {10}, 10);

  void write_all(const std::string& prefix, const std::string& joint, bool packed) {
    for (const char* part : {"train", "t10k"}) {
      const std::string ending = packed ? "-ubyte.gz" : "-ubyte";
      directory.write(prefix + part + "-images" + joint + "idx3" + ending,
                      packed ? gzip(images) : images);
      directory.write(prefix + part + "-labels" + joint + "idx1" + ending,
                      packed ? gzip(labels) : labels);
    }
  }
};

// CASES DA-04.
struct MnistNames : Mnist,
                    testing::WithParamInterface<std::tuple<const char*, const char*, bool>> {};

TEST_P(MnistNames, AreFoundInEverySpelling) {
  const auto [prefix, joint, packed] = GetParam();
  EXPECT_FALSE(has_mnist(directory.path()));
  write_all(prefix, joint, packed);
  EXPECT_TRUE(has_mnist(directory.path()));
  const TrainTest data = load_mnist(directory.path());
  EXPECT_EQ(data.train.x.shape(), Shape({10, 2, 2, 1}));
  EXPECT_EQ(data.test.y.shape(), Shape({10}));
}

INSTANTIATE_TEST_SUITE_P(All, MnistNames,
                         testing::Combine(testing::Values("", "MNIST/"), testing::Values("-", "."),
                                          testing::Bool()));

TEST_F(Mnist, MissingFilesListEveryNameTried) {
  directory.write("train-labels-idx1-ubyte", labels);
  const std::string text = message_of<IoError>([&] { (void)find_mnist(directory.path()); });
  EXPECT_THAT(
      text, AllOf(HasSubstr(directory.path().string()),
                  HasSubstr("train-images-idx3-ubyte, train-images-idx3-ubyte.gz, "
                            "train-images.idx3-ubyte, train-images.idx3-ubyte.gz"),
                  HasSubstr("t10k-labels.idx1-ubyte.gz"), testing::Not(HasSubstr("train-labels"))));
  EXPECT_TRUE(has_mnist(directory.path()));
  EXPECT_THROW((void)find_mnist(directory.path() / "nowhere"), IoError);
  EXPECT_FALSE(has_mnist(directory.path() / "nowhere"));
}

TEST_F(Mnist, HalfADownloadInAHiddenDirectoryIsNotMnist) {
  directory.write(".mnist.a1b2/train-images-idx3-ubyte", images);
  EXPECT_FALSE(has_mnist(directory.path()));
}

TEST_F(Mnist, StandardisesPixels) {
  const auto image_file = directory.write("images", idx(0x08, {1, 1, 3}, 3));
  const auto label_file = directory.write("labels", idx(0x08, {1}, 1));
  const Dataset raw = load_images(image_file, label_file, {.mean = 0.0, .deviation = 1.0});
  EXPECT_THAT(raw.x.data<float>(),
              ElementsAre(0.0F, static_cast<float>(1.0 / 255.0), static_cast<float>(2.0 / 255.0)));
  const Dataset data = load_images(image_file, label_file);
  EXPECT_THAT(data.x.data<float>()[0], testing::FloatEq(static_cast<float>(-0.1307 / 0.3081)));
  EXPECT_THROW((void)load_images(image_file, label_file, {.deviation = 0.0}), Error);
}

// CASES DA-12.
TEST_F(Mnist, SizesComeFromTheFile) {
  const auto image_file = directory.write("images", idx(0x08, {100, 8, 8}, 6400));
  const auto label_file = directory.write("labels", idx(0x08, {100}, 100, 10));
  const Dataset data = load_images(image_file, label_file);
  EXPECT_EQ(data.x.shape(), Shape({100, 8, 8, 1}));
  EXPECT_EQ(data.size(), 100);
}

// CASES DA-06.
TEST_F(Mnist, CountsMustAgree) {
  const auto image_file = directory.write("images", images);
  const auto label_file = directory.write("labels", idx(0x08, {9}, 9));
  EXPECT_THAT(message_of<IoError>([&] { (void)load_images(image_file, label_file); }),
              AllOf(HasSubstr(image_file.string()), HasSubstr("10 images"),
                    HasSubstr(label_file.string()), HasSubstr("9 labels")));
}

TEST_F(Mnist, LabelsMustBeInTheDeclaredClasses) {
  const auto image_file = directory.write("images", idx(0x08, {11, 2, 2}, 44));
  const auto label_file = directory.write("labels", idx(0x08, {11}, 11));
  EXPECT_THAT(message_of<IoError>([&] { (void)load_images(image_file, label_file); }),
              AllOf(HasSubstr(label_file.string()), HasSubstr("label 10 at position 10"),
                    HasSubstr("10 classes allow 0 to 9")));
  EXPECT_EQ(load_images(image_file, label_file, {.classes = 11}).size(), 11);
}

// CASES DA-03.
TEST_F(Mnist, SwappedFilesAreNoticed) {
  const auto image_file = directory.write("images", images);
  const auto label_file = directory.write("labels", labels);
  EXPECT_THAT(message_of<IoError>([&] { (void)load_images(label_file, image_file); }),
              AllOf(HasSubstr(label_file.string()),
                    HasSubstr("rank 1, unsigned byte (magic 2049); rank 3 expected")));
  const auto real = directory.write("real", idx(0x0D, {1, 1, 1}, 4));
  EXPECT_THAT(message_of<IoError>([&] { (void)load_images(real, label_file); }),
              HasSubstr("type float; unsigned byte expected"));
}

}  // namespace
}  // namespace steady
