// Products over one routing on several streams, with the kernels on the emulated GPU. Its kernels run one after another, so a
// kernel that has not ended on another stream is the numbers that it has left in the tile counters of the routing. What runs at
// the same time on a GPU: tests/ops/streams_cuda_test.cpp.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/ops/device.h"
#include "lib/ops/routing_cuda.h"
#include "lib/ops/token_rounding.h"
#include "tests/catch.h"
#include "tests/kernels/ops/emulated_device.h"
#include "tests/ops/moe_mlp_cases.h"
#include "tests/ops/parallel_linear_forms.h"
#include "tests/ops/poisoned_memory.h"

namespace scatterlm {
namespace {

using test::ExpertCase;
using test::Tensors;

CUstream_st* stream_number(uintptr_t number) { return reinterpret_cast<CUstream_st*>(number); }

struct OnStream {
  explicit OnStream(uintptr_t number) { ops::set_current_stream(stream_number(number)); }
  ~OnStream() { ops::set_current_stream(nullptr); }
};

const ExpertCase kCase{.name = "", .tokens = 150, .top_k = 2, .experts = 5, .model = 72, .width = 136};

/// Of a routing of kCase; with bf16 inputs and gates in fp32.
struct StreamedOp {
  std::string name;
  std::function<at::Tensor(const ops::Routing&, const Tensors&)> run;
  Tensors inputs;
};

std::vector<StreamedOp> streamed_ops() {
  auto mlp = test::moe_mlp::make_inputs(kCase, Activation::kSwiglu);
  const auto form = test::parallel_linear::all_forms().back();
  auto linear = test::parallel_linear::make_inputs(kCase, form);
  for (auto* inputs : {&mlp, &linear}) {
    for (auto& x : *inputs) x = x.to(at::kBFloat16);
    inputs->back() = kCase.gates().to(at::kFloat);
  }
  return {{.name = "moe_mlp",
           .run = [](const ops::Routing& routing,
                     const Tensors& x) { return ops::moe_mlp(x[0], x[1], x[2], x[3], routing, Activation::kSwiglu); },
           .inputs = mlp},
          {.name = "parallel_linear",
           .run = [form](const ops::Routing& routing,
                         const Tensors& x) { return ops::parallel_linear(x[0], x[1], routing, form.in, form.out, x[2]); },
           .inputs = linear}};
}

at::Tensor counters_of(const ops::Routing& routing) { return routing.tiles_E3.slice(0, -2); }

}  // namespace

TEST_CASE("streams: a product on another stream leaves the tile counters of the routing alone", "[streams]") {
  ops::assume_compute_capability(90);
  const auto op = GENERATE(from_range(streamed_ops()));
  INFO(op.name);
  const auto routing = ops::make_routing(kCase.ids(), kCase.experts);
  const auto run = [&](const Tensors& x) { return op.run(routing, x); };
  const auto expected = test::run(run, op.inputs);
  REQUIRE(at::equal(counters_of(routing), at::zeros({2}, at::kInt)));

  const auto begun = at::full({2}, 1, at::kInt);  // a kernel on the stream of the routing has begun its first tile
  counters_of(routing).copy_(begun);
  const OnStream other(1);
  const test::PoisonedMemory poisoned;
  const auto actual = test::run(run, op.inputs);
  REQUIRE(at::equal(actual.value, expected.value));
  for (size_t i = 0; i < actual.grads.size(); ++i) REQUIRE(at::equal(actual.grads[i], expected.grads[i]));
  REQUIRE(at::equal(counters_of(routing), begun));
}

TEST_CASE("streams: one stream makes no copies, and calls on others share none", "[streams]") {
  ops::assume_compute_capability(90);
  const OnStream first(1);
  const auto routing = ops::make_routing(kCase.ids(), kCase.experts);
  REQUIRE(routing.stream == stream_number(1));
  REQUIRE(ops::tiles_for_stream(routing, stream_number(1)).is_same(routing.tiles_E3));
  const auto one = ops::tiles_for_stream(routing, stream_number(2)), two = ops::tiles_for_stream(routing, stream_number(2));
  REQUIRE_FALSE(one.is_alias_of(two));
  REQUIRE_FALSE(one.is_alias_of(routing.tiles_E3));
  REQUIRE(at::equal(one, routing.tiles_E3));
}

TEST_CASE("streams: every routing names the stream that it was made on", "[streams]") {
  const at::NoGradGuard no_grad;
  const OnStream second(2);
  const ops::RouterOptions options{.num_experts_per_tok = 2};
  const auto weight_ED = test::randn({8, 16}, 1).to(at::kBFloat16), x_TD = test::randn({5, 16}, 2).to(at::kBFloat16);
  const auto chosen = ops::router(x_TD, weight_ED, {}, options);
  REQUIRE(chosen.routing);
  REQUIRE(chosen.routing->stream == stream_number(2));
  REQUIRE(ops::token_rounding(chosen, options).routing.stream == stream_number(2));
}

}  // namespace scatterlm
