#include "lib/doctor/kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <functional>
#include <string>

#include "lib/bench/accuracy.h"
#include "lib/bench/bench.h"
#include "lib/config/enums.h"
#include "lib/ops/activation.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/device.h"
#include "lib/ops/normal.h"
#include "lib/ops/qk_norm_rope.h"
#include "lib/ops/reduce_partials.h"
#include "lib/ops/rms_norm.h"
#include "lib/ops/rope.h"
#include "lib/util/error.h"
#include "lib/util/gpu.h"
#include "lib/util/text.h"

namespace scatterlm::doctor {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Family {
  std::string name;
  std::function<void()> check;  ///< throws Error if a result is wrong
};

at::TensorOptions floats(at::Device device) {
  return at::TensorOptions(device).dtype(device.is_cuda() ? at::kBFloat16 : at::kFloat);
}

/// Value and gradients of `op` and `plain`, which take the same tensors, against `plain` in a higher precision.
void compare(const std::string& what, const Tensors& inputs, const std::function<at::Tensor(const Tensors&)>& op,
             const std::function<at::Tensor(const Tensors&)>& plain) {
  const auto own = inputs.front().scalar_type();
  const auto run = [&](const auto& call, at::ScalarType dtype) {
    Tensors leaves;
    for (const auto& input : inputs) leaves.push_back(input.detach().to(dtype).requires_grad_());
    const auto value = call(leaves);
    Tensors results = torch::autograd::grad({value}, leaves, {at::full_like(value, 0.5)});
    results.insert(results.begin(), value.detach());
    for (auto& result : results) result = result.dim() == 0 ? result.view({1}) : result;
    return results;
  };
  const auto actual = run(op, own), same = run(plain, own), truth = run(plain, bench::higher_precision(own));
  std::vector<bench::Comparison> results;
  for (size_t i = 0; i < actual.size(); ++i)
    results.push_back({i == 0 ? "the result" : fmt::format("gradient {}", i), actual[i], same[i], truth[i]});
  bench::require_accurate(what, results);
}

void check_activations(at::Device device) {
  for (const auto kind : {Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu}) {
    for (const int64_t width : {2 * 33, 2 * 72})
      compare(
          fmt::format("activation {}", enum_name(kind)), {at::randn({37, width}, floats(device))},
          [&](const Tensors& x) { return ops::activation(x[0], kind); },
          [&](const Tensors& x) { return ops::ref::activation(x[0], kind); });
  }
}

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  const auto wide = x.to(x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type());
  const auto normed = wide * (wide.square().mean(-1, /*keepdim=*/true) + 1e-6).rsqrt();
  return normed.to(x.scalar_type()) * weight;
}

void check_rms_norm(at::Device device, int64_t width) {
  const Tensors inputs = {at::randn({31, width}, floats(device)), at::randn({31, width}, floats(device)),
                          at::randn({width}, floats(device))};
  compare(
      "rms_norm", inputs,
      [](const Tensors& x) { return ops::rms_norm(x[0], x[2], 1e-6) + ops::add_rms_norm(x[0], x[1], x[2], 1e-6).y; },
      [](const Tensors& x) { return plain_rms_norm(x[0], x[2]) + plain_rms_norm(x[0] + x[1], x[2]); });
}

/// Queries and keys of 5 and 1 heads, normalised over a head or all together.
void check_qk_norm_rope(at::Device device, int64_t width, bool per_head) {
  constexpr int64_t kHeads = 5;
  const auto [cos, sin] = ops::rope_tables(17, width, 1e4, device);
  const auto weight = [&](int64_t heads) { return at::randn({per_head ? width : heads * width}, floats(device)); };
  compare(
      "qk_norm_rope", {at::randn({3, 17, (kHeads + 2) * width}, floats(device)), weight(kHeads), weight(1)},
      [&cos = cos, &sin = sin](const Tensors& x) {
        const auto [q, k, v] = ops::qk_norm_rope(
            x[0], {.query_heads = kHeads, .key_heads = 1, .query_weight = x[1], .key_weight = x[2], .eps = 1e-6}, cos, sin);
        return at::cat({q, k, v}, 2);
      },
      [&cos = cos, &sin = sin, width](const Tensors& x) {
        const auto tables = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
        const auto parts = x[0].split_with_sizes({kHeads * width, width, width}, -1);
        const auto rotated = [&](const at::Tensor& part, const at::Tensor& norm_weight) {
          const auto normed = plain_rms_norm(part.unflatten(-1, {-1, norm_weight.size(0)}), norm_weight);
          return ops::ref::rope(normed.flatten(-2).unflatten(-1, {-1, width}), cos.to(tables), sin.to(tables))
              .to(x[0].scalar_type());
        };
        return at::cat({rotated(parts[0], x[1]), rotated(parts[1], x[2]), parts[2].unflatten(-1, {1, width})}, 2);
      });
}

void check_rope(at::Device device, int64_t width) {
  const auto [cos, sin] = ops::rope_tables(17, width, 1e4, device);
  compare(
      "rope", {at::randn({3, 17, 5, width}, floats(device))},
      [&cos = cos, &sin = sin](const Tensors& x) { return ops::rope(x[0], cos, sin); },
      [&cos = cos, &sin = sin](const Tensors& x) {
        const auto tables = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
        return ops::ref::rope(x[0], cos.to(tables), sin.to(tables)).to(x[0].scalar_type());
      });
}

void check_cross_entropy(at::Device device, int64_t vocab) {
  const auto target = at::arange(45, at::TensorOptions(device).dtype(at::kLong)) * 7 % vocab;
  compare(
      "cross_entropy", {at::randn({45, 40}, floats(device)), at::randn({vocab, 40}, floats(device)).mul_(0.2)},
      [&](const Tensors& x) { return ops::linear_cross_entropy(x[0], x[1], target); },
      [&](const Tensors& x) {
        const auto logits = at::mm(x[0], x[1].t());
        const auto wide = logits.to(logits.scalar_type() == at::kBFloat16 ? at::kFloat : logits.scalar_type());
        return -at::log_softmax(wide, 1).gather(1, target.view({-1, 1})).sum();
      });
}

/// Bits that every device must give.
void check_same_bits(at::Device device) {
  for (const int64_t numel : {1, 1001, 1008}) {
    const auto here = at::empty({numel}, at::kFloat), there = at::empty({numel}, at::device(device).dtype(at::kFloat));
    for (const auto& out : {here, there}) ops::fill_normal(out, ops::stream_of(1, "doctor"), 3, 0.5F);
    if (!at::equal(here, there.cpu())) fail("[normal] random numbers differ from those of the CPU");
    const auto others = at::randn({3, numel}), own = at::randn({numel});
    auto sum = at::empty({numel}), on_device = at::empty({numel}, at::device(device));
    ops::reduce_partials(others, own, 1, sum);
    ops::reduce_partials(others.to(device), own.to(device), 1, on_device);
    const auto plain = others[0] + own + others[1] + others[2];
    if (!at::equal(sum, plain) || !at::equal(on_device.cpu(), plain)) fail("[reduce_partials] sums of ranks are not exact");
  }
}

/// The benches of ops with experts: they compare before they time; one round of timing costs little.
std::vector<Family> families_of_benches(const bench::Machine& machine, const std::string& suffix) {
  std::vector<Family> families;
  for (const auto& bench : bench::all_benches()) {
    if (!bench.has_experts || (!suffix.empty() && !bench.has_families)) continue;
    const bool heads = bench.name == "moa" || bench.name == "parallel_linear";
    families.push_back({bench.name + suffix, [&bench, &machine, heads] {
                          const bench::Conditions conditions{
                              .machine = machine, .routing = bench::RoutingPattern::kSkewed, .rounds = 1, .dump = ""};
                          // One token short of or past a tile; widths that end within one; experts without tokens.
                          for (const auto& measurement : bench.parse(heads ? "1,33,72,5,2,1" : "33,72,40,9,3;129,136,72,5,2"))
                            measurement.run(conditions);
                        }});
  }
  return families;
}

std::vector<Family> families_of_ops(at::Device device) {
  return {{"activation", [=] { check_activations(device); }},
          {"rms_norm",
           [=] {
             for (const int64_t width : {129, 136, 2056}) check_rms_norm(device, width);
           }},  // the kernel takes multiples of 8
          {"qk_norm_rope",
           [=] {
             for (const int64_t width : {24, 48, 128})
               for (const bool per_head : {false, true}) check_qk_norm_rope(device, width, per_head);
           }},  // and here of 16
          {"rope",
           [=] {
             for (const int64_t width : {24, 48}) check_rope(device, width);
           }},  // likewise
          {"cross_entropy",
           [=] {
             for (const int64_t vocab : {131, 136}) check_cross_entropy(device, vocab);
           }},  // and here of 8
          {"normal, reduce_partials", [=] { check_same_bits(device); }}};
}

struct Checked {
  std::vector<std::string> names;
  std::vector<Finding> wrong;

  void run(const std::vector<Family>& families) {
    for (const auto& family : families) {
      names.push_back(family.name);
      try {
        family.check();
      } catch (const std::exception& error) {
        wrong.push_back({"kernels", Health::kFailed, fmt::format("{}: {}", family.name, first_line(error.what())),
                         "report it with the output of `scatterlm --version`; SCATTERLM_KERNELS=OFF builds without kernels"});
      }
    }
  }
};

}  // namespace

std::vector<Finding> check_kernels() {
  const auto start = std::chrono::steady_clock::now();
  const bool on_gpu = !gpus().empty() && ops::kernels_cuda_version() > 0 && gpus().front().compute_capability >= 80;
  bench::Machine machine;
  if (on_gpu) machine = {.device = at::Device(at::kCUDA, 0), .gpu = gpus().front().name};
  Checked checked;
  checked.run(families_of_ops(machine.device));
  checked.run(families_of_benches(machine, ""));
  if (on_gpu && gpus().front().compute_capability == 90) {  // the family that all other GPUs run
    ops::assume_compute_capability(80);
    checked.run(families_of_benches(machine, " (portable)"));
    ops::assume_compute_capability(0);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<Finding> findings = std::move(checked.wrong);
  if (findings.empty()) {
    findings.push_back(
        {"kernels", Health::kOk,
         fmt::format("as exact on odd shapes as plain LibTorch, on {}: {} ({})", on_gpu ? gpus().front().name : "the CPU",
                     fmt::join(checked.names, ", "), format_duration(seconds))});
  }
  return findings;
}

}  // namespace scatterlm::doctor
