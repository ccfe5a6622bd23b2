#include "lib/report/comparison.h"

#include <filesystem>

#include "lib/config/load.h"
#include "lib/nn/model_size.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

Side side(const std::string& path, std::vector<double> block_ms, double peak_gib) {
  return {.name = std::filesystem::path(path).stem(),
          .path = path,
          .config = load_config(path),
          .numerics = {at::kCPU, at::kFloat, true},
          .peak_gib = peak_gib,
          .block_ms = std::move(block_ms)};
}

/// The side with other values of keys.
Side changed(Side side, const std::vector<std::string>& sets) {
  side.config = load_config(side.path, sets);
  return side;
}

/// Names of those that are not equal.
std::vector<std::string> unequal(const Side& first, const Side& second) {
  std::vector<std::string> names;
  for (const auto& condition : conditions(first, second)) {
    if (!condition.equal) names.push_back(condition.name);
  }
  return names;
}

Condition find(const std::vector<Condition>& conditions, const std::string& name) {
  for (const auto& condition : conditions) {
    if (condition.name == name) return condition;
  }
  return {};
}

const Side kDense = side("configs/tiny_dense.yaml", {100, 200, 400}, 0.5);
const Side kMoe = side("configs/tiny_moe.yaml", {125, 400, 400}, 2);

}  // namespace

TEST_CASE("comparison: rows hold medians over blocks", "[comparison]") {
  const auto dense = comparison_row(kDense), moe = comparison_row(kMoe);
  REQUIRE((dense["name"] == "tiny_dense" && dense["config"] == "configs/tiny_dense.yaml" &&
           dense["block_ms"] == std::vector<double>{100, 200, 400}));
  REQUIRE((dense["step_ms"] == 200 && dense["step_ms_p10"] == 120 && dense["step_ms_p90"] == 360));
  REQUIRE(dense["tok_s"] == 2048 / 0.2);  // the median of rates 2048/0.1, 2048/0.2, 2048/0.4
  REQUIRE(dense["tok_s_p90"] == Approx(2048 / 0.2 + 0.8 * (2048 / 0.1 - 2048 / 0.2)));
  const double flops = nn::flops_per_token(kDense.config.model, 256);
  REQUIRE((dense["flops_per_token"] == flops && dense["flops_per_s"] == Approx(2048 / 0.2 * flops)));
  REQUIRE((dense["mfu"].is_null() && dense["peak_gib"] == 0.5));
  const auto size = nn::model_size(kMoe.config.model);
  REQUIRE((moe["total_parameters"] == size.total && moe["active_parameters"] == size.active));
}

TEST_CASE("comparison: ratios are those of pairs of blocks", "[comparison]") {
  const auto ratio = comparison_ratios(kDense, kMoe)["ratio"];
  REQUIRE((ratio["tok_s"] == Approx(0.8) && ratio["step_ms"] == Approx(1.25)));  // 0.8, 0.5, 1: not 0.5 as of the medians
  REQUIRE((ratio["tok_s_p10"] == Approx(0.56) && ratio["tok_s_p90"] == Approx(0.96)));
  REQUIRE((ratio["peak_gib"] == 4 && !ratio.contains("peak_gib_p10")));
}

TEST_CASE("comparison: the table", "[comparison]") {
  const auto text = comparison_text({kDense, kMoe});
  for (const auto* part : {"tiny_moe / tiny_dense", "10240 (6144 to 18432)", "0.800 (0.560 to 0.960)", "0.5     ", "4.000\n",
                           "  layers: gqa+dense*4 and gqa+moe*4\n", "  optimiser\n"})
    REQUIRE_THAT(text, ContainsSubstring(part));
  REQUIRE(text.find("  optimiser\n") < text.find("Not equal:"));
  REQUIRE(text.find("  layers: ") > text.find("Not equal:"));
}

TEST_CASE("comparison: three models, each with the first", "[comparison]") {
  const auto text = comparison_text({kDense, kMoe, side("configs/dense_124m.yaml", {50, 100, 100}, 4)});
  for (const auto* part : {"tiny_dense  ", "dense_124m / tiny_dense", "8.000\n", "tiny_moe / tiny_dense, equal (counts",
                           "dense_124m / tiny_dense, equal (counts", "  width: 128 and 768\n"})
    REQUIRE_THAT(text, ContainsSubstring(part));
}

TEST_CASE("comparison: a spread too wide for a conclusion is said", "[comparison]") {
  const auto said = [](std::vector<double> first, std::vector<double> second) {
    return comparison_text(
        {side("configs/tiny_dense.yaml", std::move(first), 1), side("configs/tiny_moe.yaml", std::move(second), 1)});
  };
  REQUIRE_THAT(
      said({92, 169}, {100, 100}),
      ContainsSubstring(
          "\ntiny_moe / tiny_dense: the ratio of tok/s was between 0.92 and 1.69 in different blocks: too wide a spread for a "
          "conclusion. Repeat it on an idle machine, with more --blocks (now 2).\n"));
  for (const auto& text : {said({100, 105, 98}, {100, 100, 100}), said({100, 200, 400}, {200, 400, 800}), said({100}, {50})})
    REQUIRE(text.find("too wide") == std::string::npos);
}

TEST_CASE("comparison: the shipped pairs differ in layers and total parameters alone", "[comparison]") {
  const std::vector<std::string> experts = {"layers", "parameters"};
  REQUIRE(unequal(kDense, kMoe) == experts);
  REQUIRE(unequal(side("configs/dense_124m.yaml", {1}, 1), side("configs/moe_124m.yaml", {1}, 1)) == experts);
  const auto moa = conditions(side("configs/dense_124m.yaml", {1}, 1), side("configs/moa_moe_124m.yaml", {1}, 1));
  REQUIRE(find(moa, "active parameters").equal);
  REQUIRE_FALSE(find(moa, "FLOPs per token").equal);
}

TEST_CASE("comparison: what makes it unfair", "[comparison]") {
  const auto unequal_with = [](const std::vector<std::string>& sets) { return unequal(kDense, changed(kDense, sets)); };
  using Names = std::vector<std::string>;
  REQUIRE(unequal(kDense, kDense).empty());
  REQUIRE(unequal_with({"run.name=other", "train.steps=70", "log.interval=3"}).empty());
  REQUIRE(unequal_with({"train.seed=1"}) == Names{"tokens of every step"});
  REQUIRE(unequal_with({"train.micro_batch_size=4"}) == Names{"sequences per forward pass"});
  REQUIRE(unequal_with({"optim.lr=1"}) == Names{"optimiser"});
  REQUIRE(unequal_with({"train.global_batch_tokens=4096"}) ==
          Names{"tokens of every step", "tokens per step", "sequences per forward pass"});
  REQUIRE(unequal_with({"data.train=other.bin"}) == Names{"tokens of every step"});
  REQUIRE(unequal_with({"data.eot_token=-1"}) == Names{"document boundaries"});
  auto half = kDense;
  half.numerics.dtype = at::kBFloat16;
  REQUIRE(unequal(kDense, half) == Names{"precision"});
}

TEST_CASE("comparison: what differs in a kind of layer is named", "[comparison]") {
  using Names = std::vector<std::string>;
  const auto of_moe = [](const std::vector<std::string>& sets) { return unequal(kMoe, changed(kMoe, sets)); };
  REQUIRE(of_moe({"model.moe.activation=geglu"}) == Names{"moe layers"});
  REQUIRE(of_moe({"model.router.norm_topk_prob=false"}) == Names{"routers"});
  REQUIRE(of_moe({"model.attention.rope_theta=500"}) == Names{"gqa layers"});
  REQUIRE(of_moe({"model.rms_norm_eps=0.001"}) == Names{"embedding, norms and initial values"});
  // Half as many experts of twice the width: what a token costs is the same.
  const auto coarse =
      changed(kMoe, {"model.moe.num_experts=4", "model.moe.num_experts_per_tok=1", "model.moe.moe_intermediate_size=256"});
  REQUIRE(unequal(kMoe, coarse) == Names{"moe layers"});
  const auto experts = find(conditions(kMoe, coarse), "moe layers");
  REQUIRE_THAT(experts.first, ContainsSubstring("model.moe.num_experts=8, model.moe.num_experts_per_tok=2"));
  const auto normed = find(conditions(kMoe, changed(kMoe, {"model.attention.qk_norm=full"})), "gqa layers");
  REQUIRE((normed.first == "model.attention.qk_norm=head" && normed.second == "model.attention.qk_norm=full"));
}

TEST_CASE("comparison: keys that one model does not look at are neither equal nor different", "[comparison]") {
  REQUIRE(find(conditions(kDense, kMoe), "moe layers").name.empty());
  REQUIRE(find(conditions(kDense, kMoe), "gqa layers").equal);
  const auto aux = changed(kMoe, {"model.router.aux_loss_coef=0.5"}), bias = changed(kMoe, {"model.router.balance=bias"});
  REQUIRE(find(conditions(aux, bias), "routers").first == "model.router.balance=aux");
}
