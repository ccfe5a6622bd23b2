#include "lib/train/training_plan.h"

#include <nlohmann/json.hpp>

#include "lib/config/load.h"
#include "lib/train/memory_estimate.h"
#include "lib/util/file.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// V 11, D 4; GQA 2 heads of width 2 with one key-value head; MoA 3 experts, 2 of a token, one head of width 2;
/// dense F 5; MoE 4 experts, 2 of a token, F 3, shared 2.
Config planned_tiny(const std::string& layers) {
  Config config;
  auto& model = config.model;
  model.vocab_size = 11;
  model.hidden_size = 4;
  model.num_hidden_layers = 1;
  model.layers = layers;
  model.attention = {.num_attention_heads = 2, .num_key_value_heads = 1, .head_dim = 2};
  model.moa = {.num_experts = 3, .num_experts_per_tok = 2, .num_key_value_heads = 1, .head_dim = 2};
  model.dense.intermediate_size = 5;
  model.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 3, .shared_intermediate_size = 2};
  model.attention.qk_norm = model.moa.qk_norm = QkNorm::kNone;
  return config;
}

double layers_of(const Config& config, int64_t tokens) { return estimate_activations(config, at::kBFloat16, tokens).layers; }

}  // namespace

TEST_CASE("training_plan: activations, counted by hand") {
  // Of a token: hidden state and its gradient 3 * 4 elements and a scale, two norms of 2 * 4 elements and a scale.
  const double outside = (3 * 4 * 2 + 4) + 2 * (2 * 4 * 2 + 4);
  const double gqa = 2 * (8 + 6 + 4) + 4 * 2;                        // q k v, rotated q k, output; two heads
  const double dense = 2 * (10 + 5);                                 // before and after the activation
  const double moa = 4 * (3 + 5 * 2) + 2 * (4 + 6 + 2 * 4) + 4 * 2;  // router; k v, rotated q k, output twice; two heads
  const double moe = 4 * (4 + 5 * 2) + 2 * (2 * 6) + 2 * 6;          // router; pre-activations of two experts; the shared one
  auto config = planned_tiny("gqa+dense");
  REQUIRE(layers_of(config, 10) == 10 * (outside + gqa + dense));
  config.model.attention.qk_norm = QkNorm::kHead;  // 3 scales
  config.model.attention.clip_qkv = 8;             // values anew, and the normalised queries and keys
  REQUIRE(layers_of(config, 10) == 10 * (outside + gqa + 4 * 3 + 2 * (2 + 6) + dense));
  config = planned_tiny("moa+moe");
  REQUIRE(layers_of(config, 10) == 10 * (outside + moa + moe));
  config.model.moa.qk_norm = QkNorm::kHead;  // the queries before it, and scales of 3 heads
  REQUIRE(layers_of(config, 10) == 10 * (outside + moa + 2 * 4 + 4 * 3 + moe));
}

TEST_CASE("training_plan: recomputed activations, counted by hand") {
  auto config = planned_tiny("gqa+dense, moa+moe, gqa+dense");
  config.model.num_hidden_layers = 3;
  const double state = 4 * 2, last = 3 * state + 4;  // a hidden state of a token; hidden state and gradient at the head
  const double gqa = 2 * (8 + 6 + 4) + 4 * 2, dense = 2 * (10 + 5);  // as above
  const double moa = 4 * (3 + 5 * 2) + 2 * (4 + 6 + 2 * 4) + 4 * 2, moe = 4 * (4 + 5 * 2) + 2 * (2 * 6) + 2 * 6;
  const auto of = [&](Recompute recompute) {
    config.train.recompute = recompute;
    return estimate_activations(config, at::kBFloat16, 10);
  };
  const double sub_layers = 2 * (gqa + dense) + moa + moe;
  REQUIRE(of(Recompute::kNone).layers == 10 * (last + 6 * (2 * state + 4) + sub_layers));
  REQUIRE(of(Recompute::kNorms).layers == 10 * (last + 6 * (state + 4) + sub_layers));
  REQUIRE(of(Recompute::kLayer).layers == 10 * (last + 3 * state));
  const double head = 4 * 44 + 10 * 11 * (4 + 2), largest = std::max(moa, moe);
  REQUIRE(of(Recompute::kNone).head == std::max(head, 10 * largest));
  REQUIRE(of(Recompute::kNorms).head == std::max(head, 10 * (largest + state)));
  REQUIRE(of(Recompute::kLayer).head == 10 * (moa + moe + 2 * (2 * state + 4) + largest));
  REQUIRE(10 * (largest + state) > head);
}

TEST_CASE("training_plan: the output head, counted by hand") {
  auto config = planned_tiny("gqa+dense");
  const auto head = [&](int64_t tokens, at::ScalarType dtype) { return estimate_activations(config, dtype, tokens).head; };
  REQUIRE(head(10, at::kBFloat16) == 4 * 44 + 10 * 11 * (4 + 2));
  REQUIRE(head(10, at::kFloat) == 4 * 44 + 10 * 11 * (4 + 4));
  config.model.vocab_size = 1 << 16;  // chunks of 4096 tokens
  REQUIRE(head(5000, at::kBFloat16) == (1 << 18) * 4 + 4096.0 * (1 << 16) * 6);
  config.model.dense.intermediate_size = 1 << 20;  // saves more than the head takes
  REQUIRE(head(4096, at::kBFloat16) == 4096.0 * 2 * 3 * (1 << 20));
}

TEST_CASE("training_plan: within 3 % of what steps on an H200 took") {
  const auto rows = [](const std::string& name) {
    return nlohmann::json::parse(read_file("tests/bench/results/" + name + "_h200.json"))["rows"];
  };
  const auto require_close = [](const Config& config, const nlohmann::json& row) {
    const auto plan = plan_training(config, {.gpu = planned_gpu("h200")});
    CAPTURE(row["config"].get<std::string>(), plan.memory());
    REQUIRE(planned_memory(config, at::kBFloat16, 1) == plan.memory());
    REQUIRE(plan.memory() / (1 << 30) == Approx(row["peak_gib"].get<double>()).epsilon(0.03));
  };
  for (const auto& row : rows("compare"))
    require_close(load_config(row["config"], {"train.global_batch_tokens=131072", "optim.name=adamw"}), row);
  for (const auto& row : rows("moe_against_dense"))  // Muon, micro-batches four times as large
    require_close(parse_config(row["settings"], row["config"]), row);
  // Measured without an evidence file.
  const auto config = load_config("configs/olmoe_1b_7b.yaml", {"optim.state_dtype=bfloat16"});
  REQUIRE(plan_training(config, {.gpu = planned_gpu("h200")}).memory() / (1 << 30) == Approx(84.7).epsilon(0.03));
}

TEST_CASE("training_plan: micro-batch, traffic and time, by hand") {
  const auto config = load_config("configs/dense_124m.yaml", {"train.global_batch_tokens=524288"});  // 512 sequences
  const PlanRequest request{.gpu = planned_gpu("rtx4090"), .gpus = 4, .tokens = 1e9, .mfu = 0.5};
  const auto plan = plan_training(config, request);
  const auto parameters = static_cast<double>(plan.total_parameters);
  REQUIRE(plan.link_bytes_per_step == Approx(0.75 * parameters * (4 + 2)));
  REQUIRE(plan.tokens_per_second == Approx(4 * 0.5 * 165.2e12 / plan.flops_per_token));
  REQUIRE(plan.hours == Approx(1e9 / plan.tokens_per_second / 3600));
  REQUIRE(plan.step_seconds == Approx(524288 / plan.tokens_per_second));
  REQUIRE((plan.micro_batch_size == 32 && plan.largest_micro_batch_size == 32));  // of the 128 sequences of a rank
  const auto taken = [&](int64_t size) {
    return plan.weights + plan.gradients + plan.optimizer + estimate_activations(config, at::kBFloat16, size * 1024).total();
  };
  REQUIRE((taken(32) <= kUsable * request.gpu.memory_bytes && taken(64) > kUsable * request.gpu.memory_bytes));
  const auto with = [&](const std::string& set) {
    return plan_training(load_config("configs/dense_124m.yaml", {"train.global_batch_tokens=524288", set}), request);
  };
  REQUIRE(with("parallel.zero=0").link_bytes_per_step == Approx(0.75 * parameters * (4 + 4)));
  REQUIRE(with("parallel.zero=2").link_bytes_per_step == Approx(0.75 * parameters * (4 * 4 + 2)));  // 4 micro-batches
  REQUIRE(with("parallel.reduce_dtype=bfloat16").link_bytes_per_step == Approx(0.75 * parameters * (2 + 2)));
  REQUIRE(with("train.grad_dtype=bfloat16").link_bytes_per_step == Approx(0.75 * parameters * (2 + 2)));
  REQUIRE(plan_training(config, {.gpu = request.gpu}).link_bytes_per_step == 0);
  REQUIRE(plan_training(load_config("configs/olmoe_1b_7b.yaml"), {.gpu = request.gpu}).largest_micro_batch_size == 0);
}

TEST_CASE("training_plan: measured and planned, in words") {
  REQUIRE(measured_and_planned(44.29, 44.06) == "memory: 44.3 GiB at peak, 44.1 GiB planned (+0.5 %)");
  REQUIRE(measured_and_planned(9, 10) == "memory: 9.0 GiB at peak, 10.0 GiB planned (-10.0 %)");
}

TEST_CASE("training_plan: words and JSON say the same") {
  const auto with = [](const std::string& set) {
    return load_config("configs/dense_124m.yaml", {"train.global_batch_tokens=524288", set});
  };
  const auto config = with("train.recompute=none");
  const PlanRequest request{.gpu = planned_gpu("h100"), .gpus = 2};
  const auto plan = plan_training(config, request);
  const auto json = plan_json(plan, config, request);
  REQUIRE(json["memory"] == plan.weights + plan.gradients + plan.optimizer + plan.activations + plan.head);
  REQUIRE((json["gpus"] == 2 && json["tokens"] == 999817216 && json["peak_flops"] == 723e12));
  const auto text = plan_text(plan, config, request);
  for (const auto* part : {"dense_124m: 124M parameters", "each of 2 GPUs (NVIDIA H100 80GB HBM3, 79.6 GiB), parallel.zero 1",
                           "activations of 32 x 1024 tokens", "40 % MFU of 723 TFLOP/s (measured with a large GEMM)"})
    REQUIRE_THAT(text, ContainsSubstring(part));
  REQUIRE(text.find("does not fit") == text.npos);
  const auto& largest_sizes = plan.largest_by_recompute;
  REQUIRE((largest_sizes[0] < largest_sizes[2] && largest_sizes[0] <= largest_sizes[1]));
  REQUIRE(plan_training(with("train.recompute=layer"), request).largest_micro_batch_size == largest_sizes[2]);
  REQUIRE_THAT(text, ContainsSubstring(fmt::format("with train.recompute none: {}, norms: {}, layer: {}\n", largest_sizes[0],
                                                   largest_sizes[1], largest_sizes[2])));
  const auto olmoe = load_config("configs/olmoe_1b_7b.yaml");
  const auto large = plan_text(plan_training(olmoe, {.gpu = request.gpu}), olmoe, {.gpu = request.gpu});
  REQUIRE_THAT(large, ContainsSubstring("This does not fit: 95 % of the GPU are 75.7 GiB."));
  REQUIRE_THAT(large, ContainsSubstring("not even train.micro_batch_size 1 fits"));
  REQUIRE_THROWS_WITH(planned_gpu("v100"), "--gpu: got 'v100', must be one of h200, h100, a100, b200, rtx4090");
}
