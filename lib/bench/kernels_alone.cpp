#include "lib/bench/kernels_alone.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lib/bench/accuracy.h"
#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

std::vector<MoeKernel> kernels_of(const std::string& bench) {
  if (bench == "grouped_gemm")
    return {MoeKernel::kUp, MoeKernel::kDown, MoeKernel::kDh, MoeKernel::kDw2, MoeKernel::kDxRows, MoeKernel::kDw1};
  if (bench == "gather_sum") return {MoeKernel::kO, MoeKernel::kDx};
  if (bench == "routing") return {MoeKernel::kRouting};
  fail("[bench] no such benchmark: {}", bench);
}

/// at::mm [R, k] x [k, n].
std::function<void()> dense_product(const GemmSides& sides, const MoeInputs& in) {
  const auto a = at::randn({in.shape.rows(), sides.k}, in.x_TD.options()), b = at::randn({sides.k, sides.n}, in.x_TD.options());
  return [a, b, c = at::empty({a.size(0), b.size(1)}, a.options())]() mutable { at::mm_out(c, a, b); };
}

/// Ours, plain LibTorch's and, for a GEMM, the dense product.
std::vector<Figure> time_kernel(MoeKernel kernel, MoeTensors& tensors, const Conditions& conditions) {
  const auto dtype = tensors.in.x_TD.scalar_type();
  const std::string name = kernel_name(kernel);
  std::vector<std::string> names = {name, name + ", ATen"};
  std::vector<Variant> variants = {variant_of(kernel, tensors), {[&] { plain_outputs(kernel, tensors, dtype); }}};
  if (const auto sides = gemm_sides(kernel, tensors.in.shape)) {
    names.push_back(name + ", dense");
    variants.push_back({dense_product(*sides, tensors.in)});
  }
  const auto times = time_interleaved(variants, conditions.rounds, conditions.machine.device);
  std::vector<Figure> figures;
  for (size_t i = 0; i < times.size(); ++i)
    figures.push_back(figure_of(kernel, names[i], times[i], tensors.in.shape, conditions.machine));
  return figures;
}

}  // namespace

MoeTensors run_all_kernels(const MoeInputs& in) {
  auto tensors = make_tensors(in);
  for (const auto kernel : kAllKernels) {
    prepare(kernel, tensors);
    launch(kernel, tensors);
  }
  return tensors;
}

double check_kernel(MoeKernel kernel, const MoeTensors& tensors) {
  const auto dtype = tensors.in.x_TD.scalar_type();
  const auto actual = outputs(kernel, tensors), plain = plain_outputs(kernel, tensors, dtype),
             truth = plain_outputs(kernel, tensors, higher_precision(dtype));
  std::vector<Comparison> results;
  for (size_t i = 0; i < actual.size(); ++i)
    results.push_back({fmt::format("output {} of {}", i + 1, actual.size()), actual[i], plain[i], truth[i]});
  return require_accurate(kernel_name(kernel), results);
}

Variant variant_of(MoeKernel kernel, MoeTensors& tensors) {
  return {.run = [=, &tensors] { launch(kernel, tensors); }, .prepare = [=, &tensors] { prepare(kernel, tensors); }};
}

Figure figure_of(MoeKernel kernel, const std::string& name, const Spread& ms, const MoeShape& shape, const Machine& machine) {
  Figure figure{.name = name, .ms = ms, .work = work_of(kernel, shape, machine.element_bytes())};
  if (machine.ceilings) figure.bound_ms = bound_ms(figure.work, *machine.ceilings);
  return figure;
}

Measured measure_kernels(const std::string& bench, const MoeInputs& in, const Conditions& conditions) {
  const at::NoGradGuard no_grad;
  auto tensors = run_all_kernels(in);
  Measured measured;
  std::vector<Figure> all;
  for (const auto kernel : kernels_of(bench)) {
    const double error_ratio = check_kernel(kernel, tensors);
    const auto figures = time_kernel(kernel, tensors, conditions);
    auto row = row_of(in.shape.sizes(), conditions);
    row["kernel"] = kernel_name(kernel);
    row.update(to_json(figures[0], conditions.machine.ceilings));
    row["aten_ms"] = figures[1].ms.median;
    if (figures.size() > 2) row["dense_ms"] = figures[2].ms.median;
    row["max_err_ratio"] = error_ratio;
    measured.rows.push_back(row);
    all.insert(all.end(), figures.begin(), figures.end());
  }
  measured.text = format_figures(all, conditions.machine.ceilings);
  return measured;
}

}  // namespace scatterlm::bench
