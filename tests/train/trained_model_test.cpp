#include "lib/train/trained_model.h"

#include <ATen/Parallel.h>

#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("a trained model runs with the threads of its training, at most all cores, unless told otherwise") {
  const int cores = 3;  // whatever this machine has
  const int before = at::get_num_threads();
  for (const auto& [trained, option, expected] : std::vector<std::tuple<int64_t, std::optional<int64_t>, int>>{
           {1, {}, 1}, {9, {}, cores}, {0, {}, cores}, {1, 2, 2}, {1, 0, cores}}) {
    TinyRun run([&, threads = trained](Config& config) { config.train.threads = threads; });
    const auto path = save_training((run.folder / "run").string(), *run.state);
    at::set_num_threads(cores);
    load_trained_model(path, option);
    CAPTURE(trained, expected);
    REQUIRE(at::get_num_threads() == expected);
  }
  at::set_num_threads(before);
}
