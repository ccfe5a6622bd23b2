// A multiple-choice task of llm.c's format.
#include "lib/tasks/read_task.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  fuzz::accept_or_throw_error([&] {
    for (const auto& example : read_llmc_task(fuzz::text(data, size), "task.bin")) {
      if (example.answer >= std::ssize(example.choices)) std::abort();
      for (const auto& choice : example.choices)
        if (choice.context < 1 || choice.context >= std::ssize(choice.tokens)) std::abort();
    }
  });
  return 0;
}
