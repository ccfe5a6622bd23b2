#include "lib/ops/normal.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/device/philox.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void fill_on_cpu(at::Tensor out, uint64_t stream, int64_t first, float scale) {
  auto* values = out.mutable_data_ptr<float>();
  constexpr int64_t kGrain = 1 << 12;  // some 100 us of work
  at::parallel_for(0, out.numel(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = kernels::normal(stream, static_cast<uint64_t>(first + i), scale);
  });
}

}  // namespace

uint64_t stream_of(uint64_t seed, std::string_view name) {
  constexpr uint64_t kPrime = 0x100000001B3;
  uint64_t hash = 0xCBF29CE484222325;
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ ((seed >> (8 * byte)) & 0xFF)) * kPrime;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  // MurmurHash3's finaliser: FNV hardly mixes the last bytes into the low bits, and names differ in their last bytes.
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCD;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53;
  return hash ^ (hash >> 33);
}

void fill_normal(at::Tensor out, uint64_t stream, int64_t first, float std) {
  if (out.dim() != 1 || out.scalar_type() != at::kFloat || !out.is_contiguous()) {
    fail("[fill_normal] out must be a contiguous fp32 vector, got {}", out.toString());
  }
  if (first < 0) fail("[fill_normal] first must not be negative, got {}", first);
  const float scale = std * kernels::kInverseSigma;
  if (cuda::fill_normal(out, stream, first, scale)) return;
  auto values = out.is_cpu() ? out : at::empty(out.sizes(), at::kFloat);
  fill_on_cpu(values, stream, first, scale);
  if (!out.is_cpu()) out.copy_(values);
}

}  // namespace scatterlm::ops
