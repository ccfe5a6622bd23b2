#include "lib/report/router_health.h"

#include <fmt/format.h>

#include <algorithm>

namespace scatterlm {
namespace {

constexpr double kHighLoad = 8, kDeadShare = 0.25;
constexpr int64_t kPatience = 50;  // steps

/// Nearly every token goes to the same experts. Up to E / K = 2 half of the tokens go to every expert anyway.
bool is_total(const RouterReport& router) { return router.load_limit > 2 && router.load_max_mean >= 0.9 * router.load_limit; }

bool has_dead_experts(const RouterReport& router) {
  return router.dead_experts > 0 &&
         static_cast<double>(router.dead_experts) >= kDeadShare * static_cast<double>(router.num_experts);
}

bool spreads_tokens(const RouterReport& router) {
  return !is_total(router) && !(router.load_max_mean >= kHighLoad) && !has_dead_experts(router);
}

std::string describe_router(const RouterReport& router) {
  std::string text = "the router of " + router.name;
  if (is_total(router)) {
    text += fmt::format(" sends nearly every token to the same experts (maximal load {:.2f}, {:.2f} is the worst possible)",
                        router.load_max_mean, router.load_limit);
  } else if (has_dead_experts(router)) {
    text += fmt::format(" sends no token to {} of its {} experts", router.dead_experts, router.num_experts);
  } else {
    text += fmt::format(" sends {:.1f} times the mean to one of its experts", router.load_max_mean);
  }
  return text;
}

}  // namespace

RouterHealth::RouterHealth(const Config& config) : router_(config.model.router), warmup_steps_(config.optim.warmup_steps) {}

std::optional<RouterHealth::Message> RouterHealth::observe(const StepReport& report) {
  std::vector<const RouterReport*> bad;
  for (const auto& router : report.routers)
    if (!spreads_tokens(router)) bad.push_back(&router);
  std::stable_partition(bad.begin(), bad.end(), [](const auto* router) { return is_total(*router); });

  const bool contradicts = collapsed_ ? bad.empty() : !bad.empty() && report.step > warmup_steps_;
  if (!contradicts) {
    since_.reset();
    return std::nullopt;
  }
  if (!since_) since_ = report.step;
  if (report.step - *since_ < kPatience) return std::nullopt;
  since_.reset();
  collapsed_ = !collapsed_;
  if (!collapsed_)
    return Message{false,
                   fmt::format("step {}: all routers have spread their tokens again for {} steps", report.step, kPatience)};

  auto text = fmt::format("step {}: for {} steps some router has not spread its tokens; now {}", report.step, kPatience,
                          describe_router(*bad[0]));
  if (bad.size() > 1) text += fmt::format(", and {} more are like it, first that of {}", bad.size() - 1, bad[1]->name);
  const char* balancing = router_.balance == Balance::kAux    ? "raise model.router.aux_loss_coef"
                          : router_.balance == Balance::kBias ? "raise model.router.bias_update_rate"
                                                              : "set model.router.balance to aux or bias";
  return Message{true, fmt::format("{}; lower optim.lr, or {}", text, balancing)};
}

}  // namespace scatterlm
