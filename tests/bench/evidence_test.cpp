#include "lib/bench/evidence.h"

#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

const SourceHash kSources{.sources = {"kernels", "lib/ops"}, .hash = "0123456789abcdef", .dirty = false};

}  // namespace

TEST_CASE("evidence: every field, in order", "[evidence]") {
  const Machine machine{.device = at::Device(at::kCUDA, 0),
                        .gpu = "NVIDIA H200",
                        .driver = "580.159",
                        .cuda = "13.0",
                        .family = "hopper",
                        .ceilings = Ceilings{.gemm_tflops = 723, .copy_tbps = 4.25}};
  auto file = evidence("moe_mlp", machine, "scatterlm bench moe_mlp --shapes published", kSources, {{{"T", 1}}});
  const auto date = file["date"].get<std::string>();
  REQUIRE((date.size() == 10 && date[4] == '-' && date[7] == '-'));
  file["date"] = "DATE";
  file["torch"] = "TORCH";
  REQUIRE(
      file.dump() ==
      R"({"bench":"moe_mlp","gpu":"NVIDIA H200","num_gpus":1,"family":"hopper","date":"DATE","torch":"TORCH","cuda":"13.0","driver":"580.159",)"
      R"("ceilings":{"gemm_tflops":723.0,"copy_tbps":4.25},"command":"scatterlm bench moe_mlp --shapes published",)"
      R"("sources":["kernels","lib/ops"],"source_hash":"0123456789abcdef","rows":[{"T":1}]})");
}

TEST_CASE("evidence: a CPU has no GPU, driver or ceilings", "[evidence]") {
  const auto file = evidence("routing", Machine{}, "", kSources, nlohmann::ordered_json::array());
  REQUIRE((file["gpu"].is_null() && file["driver"].is_null() && file["cuda"].is_null() && file["family"].is_null() &&
           file["ceilings"].is_null()));
  REQUIRE(file["num_gpus"] == 0);
}

TEST_CASE("evidence: a dirty program makes none, nor does one that cannot write", "[evidence]") {
  REQUIRE_NOTHROW(require_evidence("compare.json", kSources));
  REQUIRE_THROWS_WITH(require_evidence("no/such/compare.json", kSources), ContainsSubstring("no/such: no such folder"));
  auto dirty = kSources;
  dirty.dirty = true;
  REQUIRE_THROWS_WITH(require_evidence("compare.json", dirty),
                      ContainsSubstring("built from files that differ from git's index (kernels, lib/ops)"));
}

}  // namespace scatterlm::bench
