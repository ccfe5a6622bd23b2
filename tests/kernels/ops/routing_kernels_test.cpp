// Routing as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include <ATen/ATen.h>

#include "lib/ops/routing.h"
#include "tests/catch.h"

namespace scatterlm {

TEST_CASE("routing on kernels: the lists of the twin, on either side of the kernel's limit", "[routing]") {
  const int64_t experts = GENERATE(7, 4096, 4097);
  const auto ids_TK = (at::arange(120, at::kInt).square() % experts).to(at::kInt).view({40, 3});
  const auto routing = ops::make_routing(ids_TK, experts), twin = ops::ref::make_routing(ids_TK, experts);
  REQUIRE(routing.tiles_E3.defined() == (experts <= 4096));
  REQUIRE(at::equal(routing.sorted_R, twin.sorted_R));
  REQUIRE(at::equal(routing.inverse_R, twin.inverse_R));
  REQUIRE(at::equal(routing.tokens_R, twin.tokens_R));
  REQUIRE(at::equal(routing.offsets_E1, twin.offsets_E1));
}

TEST_CASE("routing on kernels: one allocation, from which lists begin at multiples of 128 bytes", "[routing]") {
  const auto routing = ops::make_routing(at::zeros({33, 1}, at::kInt), 3);
  const auto* begin = static_cast<const char*>(routing.sorted_R.storage().data());
  for (const auto& list : {routing.tokens_R, routing.inverse_R, routing.offsets_E1, routing.tiles_E3}) {
    REQUIRE(list.storage().is_alias_of(routing.sorted_R.storage()));
    REQUIRE((static_cast<const char*>(list.const_data_ptr()) - begin) % 128 == 0);
  }
}

}  // namespace scatterlm
