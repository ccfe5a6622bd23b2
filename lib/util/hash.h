#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace scatterlm {

/// XXH3-64 of bytes that arrive piece by piece. Finds accidents (torn files, flipped bits), not forgers.
class Hash {
 public:
  Hash();
  ~Hash();
  Hash(Hash&&) noexcept;

  void add(const void* data, size_t size);
  std::string hex() const;  ///< 16 lower-case digits, of all that was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(std::string_view bytes);

}  // namespace scatterlm
