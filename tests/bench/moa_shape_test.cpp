#include "lib/bench/moa_shape.h"

#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

const MoaShape kMoaShape{
    .batch = 2, .sequence = 5, .model = 16, .experts = 4, .top_k = 3, .heads = 1};  // T 10, R 30, width 128

std::vector<double> bytes_of(const std::vector<Work>& kernels) {
  std::vector<double> bytes;
  for (const auto& kernel : kernels) bytes.push_back(kernel.bytes);
  return bytes;
}

}  // namespace

TEST_CASE("moa shapes: numbers, names and lists", "[shapes]") {
  const auto shapes = parse_moa_shapes("jetmoe;2,5,16,4,3,1;16,2048,4096,64,8,4");
  REQUIRE(shapes.size() == 3);
  REQUIRE(text_of(shapes[0].sizes()) == "8,4096,2048,8,2,16");
  REQUIRE((shapes[1].tokens() == 10 && shapes[1].rows() == 30 && shapes[1].width() == 128 && shapes[1].name.empty()));
  REQUIRE(shapes[2].name == "moa-k8");
  REQUIRE(parse_moa_shapes("published").size() == 5);
  for (const auto& shape : parse_moa_shapes("published"))
    REQUIRE((shape.tokens() == 32768 && shape.top_k * shape.width() == 4096));
}

TEST_CASE("moa shapes: errors", "[shapes]") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"8,16,24,4,2", "'8,16,24,4,2' is neither B,S,D,E,K,heads nor one of published, jetmoe, moa-k1, "},
      {"1,8,8,2,3,1", "K = 3 in '1,8,8,2,3,1' is more than E = 2"},
      {"1,8,12,2,1,1", "D of '1,8,12,2,1,1' must be a multiple of 8"},
      {"2147483647,2147483647,8,2,2,1", "B*S*K of '2147483647,2147483647,8,2,2,1' must be below 2^31"},
  }));
  REQUIRE_THROWS_WITH(parse_moa_shapes(text), ContainsSubstring(message));
}

TEST_CASE("moa work: FLOPs and least bytes of both projections", "[work]") {
  const double x = 10 * 16, q = 30 * 128, w = 4 * 16 * 128, y = 30 * 16;  // x, dx, out and dout are alike
  const auto forward = forward_work(kMoaShape, 2), backward = backward_work(kMoaShape, 2);
  REQUIRE(bytes_of(forward) == std::vector<double>{2 * (x + w + q), 2 * (q + w + y), 2 * (y + x)});
  REQUIRE(bytes_of(backward) ==
          std::vector<double>{2 * (x + w + 3 * q), 2 * (x + q + w), 2 * (q + w + y), 2 * (q + x + w), 2 * (y + x)});
  const auto op = op_work(forward, backward, {});
  REQUIRE(op.forward.flops == 4.0 * 10 * 3 * 16 * 128);
  REQUIRE(op.training.flops == 12.0 * 10 * 3 * 16 * 128);
}

TEST_CASE("moa work: roofline of the published shapes", "[work]") {
  // 4 T K D width FLOPs at 723 TFLOP/s, worked out by hand: no projection is bound by memory there, their sums are.
  const Ceilings h200{.gemm_tflops = 723, .copy_tbps = 4.27};
  const auto shapes = parse_moa_shapes("jetmoe;moa-k8");
  const auto bound = [&](const MoaShape& shape) { return *op_work(forward_work(shape, 2), {}, h200).forward_bound_ms; };
  REQUIRE(bound(shapes[0]) == Approx(1.5207 + 0.0943).epsilon(1e-3));
  REQUIRE(bound(shapes[1]) == Approx(3.0414 + 0.5657).epsilon(1e-3));
}

TEST_CASE("moa work: half of all pairs of positions attend", "[work]") {
  REQUIRE(attention_forward_work(kMoaShape, 2).flops == 2.0 * 2 * (5 * 5) * 3 * 128);
  REQUIRE(attention_backward_work(kMoaShape, 2).flops == 2 * attention_forward_work(kMoaShape, 2).flops);
  REQUIRE(attention_forward_work(kMoaShape, 2).bytes == 2.0 * (2 * 30 + 2 * 10) * 128);
}

}  // namespace scatterlm::bench
