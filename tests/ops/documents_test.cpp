#include "lib/ops/documents.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

namespace scatterlm {
namespace {

std::vector<int32_t> offsets_of(const at::Tensor& number_BS) {
  const auto offsets = ops::Documents(number_BS, at::kCPU).offsets();
  REQUIRE(offsets.scalar_type() == at::kInt);
  return {offsets.data_ptr<int32_t>(), offsets.data_ptr<int32_t>() + offsets.numel()};
}

}  // namespace

TEST_CASE("documents: offsets and longest", "[documents]") {
  const auto number_BS =
      at::tensor({0, 0, 1, 1, 1, 2, /*row*/ 0, 0, 0, 0, 0, 0, /*row*/ 2, 3, 3, 3, 3, 4}, at::kInt).view({3, 6});
  // The second sequence begins a document, although the first one ends with another number, and so does the third one, although
  // the numbers of the two could be equal.
  REQUIRE(offsets_of(number_BS) == std::vector<int32_t>{0, 2, 5, 6, 12, 13, 17, 18});
  const ops::Documents documents(number_BS, at::kCPU);
  REQUIRE(documents.count() == 7);
  REQUIRE(documents.longest() == 6);
  REQUIRE(!documents.one_per_sequence());
}

TEST_CASE("documents: every sequence begins one, whatever its number", "[documents]") {
  const ops::Documents documents(at::zeros({3, 4}, at::kInt), at::kCPU);
  REQUIRE(offsets_of(at::zeros({3, 4}, at::kInt)) == std::vector<int32_t>{0, 4, 8, 12});
  REQUIRE(documents.one_per_sequence());
  REQUIRE(documents.longest() == 4);
  // As many documents as sequences, but not one each, cannot be: a sequence has at least one.
  REQUIRE(!ops::Documents(at::tensor({0, 1, 0, 0}, at::kInt).view({2, 2}), at::kCPU).one_per_sequence());
}

TEST_CASE("documents: numbers of a view, and one token each", "[documents]") {
  const auto number_SB = at::tensor({0, 5, 1, 5, 2, 6}, at::kInt).view({3, 2});
  REQUIRE(offsets_of(number_SB.t()) == std::vector<int32_t>{0, 1, 2, 3, 5, 6});
  REQUIRE(offsets_of(at::zeros({1, 1}, at::kInt)) == std::vector<int32_t>{0, 1});
}

TEST_CASE("documents: the mask", "[documents]") {
  const ops::Documents documents(at::tensor({0, 0, 1, 0, 0, 0}, at::kInt).view({2, 3}), at::kCPU);
  const auto expected = at::tensor({1, 0, 0, 1, 1, 0, 0, 0, 1, /*row*/ 1, 0, 0, 1, 1, 0, 1, 1, 1}, at::kInt).view({2, 1, 3, 3});
  REQUIRE(documents.mask().scalar_type() == at::kBool);
  REQUIRE(at::equal(documents.mask().to(at::kInt), expected));
  REQUIRE(documents.mask().is_same(documents.mask()));
}

TEST_CASE("documents: errors", "[documents]") {
  REQUIRE_THROWS_WITH(ops::Documents(at::zeros({4}, at::kInt), at::kCPU),
                      ContainsSubstring("[documents] numbers must be int32 [B, S] on the CPU, got Int [4] on cpu"));
  REQUIRE_THROWS_WITH(ops::Documents(at::zeros({1, 4}, at::kLong), at::kCPU), ContainsSubstring("got Long [1, 4]"));
}

}  // namespace scatterlm
