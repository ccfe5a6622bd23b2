// What each key says about going on from a checkpoint with another value.
#include "lib/config/difference.h"
#include "lib/config/keys.h"
#include "tests/config/bad_input.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

OnResume on_resume(const std::string& path) {
  const auto keys = list_keys(Config());
  const KeyInfo* key = find_key(keys, path);
  REQUIRE(key);
  return key->on_resume;
}

/// A key without a word of its own, one with, and both again in a group that inherits and in one that does not.
struct Inner {
  int64_t plain = 0, special = 0;
  template <class V>
  void visit(V& v) {
    v.key("plain", plain, "");
    v.key("special", special, "", {Range{0, 1}, OnResume::kAccept});
  }
};
struct Outer {
  Inner inherits, own;
  int64_t after = 0;
  template <class V>
  void visit(V& v) {
    v.group("inherits", inherits);
    v.group("own", own, OnResume::kWarn);
    v.key("after", after, "");
  }
};
struct Root {
  Outer outer;
  int64_t last = 0;
  template <class V>
  void visit(V& v) {
    v.group("outer", outer, OnResume::kRefuse);
    v.key("last", last, "");
  }
};

}  // namespace

TEST_CASE("a key follows its group unless it says otherwise", "[config]") {
  const auto keys = list_keys(Root());
  const auto of = [&](const char* path) { return find_key(keys, path)->on_resume; };
  REQUIRE(of("outer.inherits.plain") == OnResume::kRefuse);
  REQUIRE(of("outer.inherits.special") == OnResume::kAccept);
  REQUIRE(of("outer.own.plain") == OnResume::kWarn);
  REQUIRE(of("outer.own.special") == OnResume::kAccept);
  REQUIRE(of("outer.after") == OnResume::kRefuse);
  REQUIRE(of("last") == OnResume::kWarn);
  REQUIRE(find_key(keys, "outer.own.special")->expected == "an integer from 0 to 1");
}

TEST_CASE("architecture and batch are fixed in a run", "[config]") {
  for (const char* key :
       {"model.hidden_size", "model.layers", "model.attention.head_dim", "model.moa.num_experts", "model.dense.activation",
        "model.moe.bias", "model.router.score", "model.router.balance", "train.sequence_length", "train.global_batch_tokens"})
    REQUIRE(on_resume(key) == OnResume::kRefuse);
}

TEST_CASE("what changes the training is warned of", "[config]") {
  for (const char* key :
       {"model.initializer_range", "model.router.aux_loss_coef", "model.router.z_loss_coef", "model.router.bias_update_rate",
        "data.train", "data.eot_token", "train.seed", "train.steps", "train.dtype", "train.grad_dtype",
        "train.micro_batch_size", "optim.lr", "optim.state_dtype", "parallel.reduce_dtype"})
    REQUIRE(on_resume(key) == OnResume::kWarn);
}

TEST_CASE("where a run is kept, what it reports and how ranks share it may change", "[config]") {
  for (const char* key : {"run.dir", "data.validation", "train.eval_interval", "train.eval_tokens", "train.eval_tasks",
                          "train.max_minutes", "train.max_nonfinite_steps", "train.recompute", "parallel.zero",
                          "parallel.timeout_s", "checkpoint.async", "log.interval"})
    REQUIRE(on_resume(key) == OnResume::kAccept);
}

TEST_CASE("a difference knows what resuming makes of it", "[config]") {
  const Config first = parse_config(kMinimal, "x.yaml");
  const auto found =
      differences(first, parse_config(kMinimal, "x.yaml", {"log.interval=3", "optim.lr=1", "model.hidden_size=64"}));
  REQUIRE(found.size() == 3);
  REQUIRE(found[0].on_resume == OnResume::kRefuse);
  REQUIRE(found[1].on_resume == OnResume::kWarn);
  REQUIRE(found[2].on_resume == OnResume::kAccept);
}

TEST_CASE("the list of keys names those that are fixed", "[config]") {
  const std::string text = describe_keys(),
                    fixed = "    the same in all of a run: a checkpoint with another value is refused\n";
  REQUIRE_THAT(text, ContainsSubstring("    tokens of one sequence\n" + fixed));
  REQUIRE_THAT(text, ContainsSubstring("    peak learning rate\noptim.router_lr_scale"));
}
