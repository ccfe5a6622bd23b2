#include "lib/util/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace scatterlm {

struct Hash::State {
  XXH3_state_t xxh3;
};

Hash::Hash() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Hash::~Hash() = default;
Hash::Hash(Hash&&) noexcept = default;

void Hash::add(const void* data, size_t size) { XXH3_64bits_update(&state_->xxh3, data, size); }

std::string Hash::hex() const { return fmt::format("{:016x}", XXH3_64bits_digest(&state_->xxh3)); }

std::string hash_hex(std::string_view bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

}  // namespace scatterlm
