#include "lib/train/checkpointing.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "lib/config/check.h"
#include "lib/config/difference.h"
#include "lib/config/load.h"
#include "lib/train/data_files.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

std::string state_name(const std::string& state, const std::string& parameter) { return state + "/" + parameter; }
/// A tensor of the optimiser: names of parameters and biases have no '/'.
bool is_state(const std::string& tensor) { return tensor.find('/') != tensor.npos; }

/// Calls visit(name, param, first, values) for the weights of a shard and each tensor of its state, parameter by parameter: the
/// part that lies in `range` of the unit. `values` are elements first.. of the tensor `name`, which has the parameter's shape.
template <class F>
void for_each_piece(const Optimizer::Shard& shard, ElementRange range, F&& visit) {
  for (const auto& p : shard.unit->params()) {
    const auto visit_part = [&](const std::string& name, ElementRange held, const at::Tensor& values) {
      const int64_t from = std::max({range.begin, held.begin, p.offset});
      const int64_t to = std::min({range.end, held.end, p.offset + p.numel});
      if (from < to) visit(name, p, from - p.offset, values.narrow(0, from - held.begin, to - from));
    };
    visit_part(p.name, shard.elements, shard.weights);
    for (const auto& state : shard.state) visit_part(state_name(state.name, p.name), state.elements, state.values);
  }
}

std::string bias_name(const nn::Router& router) { return router.name + ".bias"; }

std::vector<TensorSlice> training_slices(const TrainingState& state) {
  std::vector<TensorSlice> slices;
  for (const auto& shard : state.optimizer->shards()) {
    const auto saved = state.optimizer->sharding().saved(*shard.unit);
    for_each_piece(shard, saved, [&](const std::string& name, const Param& p, int64_t first, const at::Tensor& values) {
      slices.push_back({name, p.shape, first, first + values.numel(), values});
    });
  }
  for (const auto* router : state.model.routers()) {
    if (router->bias.defined() && state.comm.rank() == 0) {
      slices.push_back({bias_name(*router), {router->num_experts}, 0, router->num_experts, router->bias});
    }
  }
  return slices;
}

/// What each key of the configuration says about resuming (OnResume), for those that differ.
void check_same_model(const CheckpointReader& reader, const Config& config) {
  const auto changed = differences(checkpoint_config(reader), config);
  for (const auto& [key, stored, now, on_resume] : changed) {
    if (on_resume == OnResume::kRefuse) {
      fail_user(
          "{}: {} is {} in the checkpoint and {} in this configuration; train from scratch in another --run-dir, or set it back",
          reader.path(), key, stored, now);
    }
  }
  for (const auto& [key, stored, now, on_resume] : changed) {
    if (on_resume == OnResume::kWarn)
      log_warning(fmt::format("{} was {} up to this checkpoint and is {} from here", key, stored, now));
  }
}

/// An imported model has weights only.
void check_has_state(const CheckpointReader& reader) {
  if (std::ranges::any_of(reader.tensors(), [](const auto& tensor) { return is_state(tensor.first); })) return;
  fail_user("{}: holds weights only, no state of an optimiser; start a new run from them: --init-from {} --run-dir NEW",
            reader.path(), reader.path());
}

/// Throws Error on every rank if any rank's state holds a value that is not finite.
void check_finite(const TrainingState& state) {
  std::vector<at::Tensor> finite;  // of each unit
  for (const auto& shard : state.optimizer->shards()) {
    auto all = at::isfinite(shard.weights).all();
    for (const auto& kept : shard.state) all = all & at::isfinite(kept.values).all();
    finite.push_back(all);
  }
  const auto broken = at::stack(finite).logical_not().to(at::kFloat);
  state.comm.all_reduce(broken);
  if (broken.sum().item<double>() == 0) return;
  const auto first = broken.argmax().item<int64_t>();
  fail("step {}: '{}' holds values that are not finite; no checkpoint is written, the previous ones stay", state.steps,
       state.optimizer->shards()[static_cast<size_t>(first)].unit->name());
}

/// The first tensor of the model that the checkpoint lacks or has in another shape, or the first one that the model lacks.
void check_same_tensors(const CheckpointReader& reader, const nn::Model& model) {
  const auto& stored = reader.tensors();
  size_t known = 0;
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      const auto found = stored.find(p.name);
      if (found == stored.end()) fail_user("{}: has no tensor '{}', which this model needs", reader.path(), p.name);
      if (found->second.shape != p.shape) {
        fail_user("{}: tensor '{}' is [{}], this model needs [{}]", reader.path(), p.name, fmt::join(found->second.shape, ", "),
                  fmt::join(p.shape, ", "));
      }
      known++;
    }
  }
  size_t weights = 0;
  for (const auto& [name, logical] : stored) {
    if (!is_state(name) && !name.ends_with(".router.bias")) weights++;
  }
  if (weights != known) fail_user("{}: holds {} weight tensors, this model has {}", reader.path(), weights, known);
}

void load_router_biases(const CheckpointReader& reader, nn::Model& model) {
  for (auto* router : model.routers()) {
    if (!router->bias.defined()) continue;
    const auto name = bias_name(*router);
    if (!reader.tensors().count(name))
      fail_user("{}: has no tensor '{}', which router.balance: bias needs", reader.path(), name);
    router->bias.copy_(reader.read(name));
  }
}

}  // namespace

TrainingSnapshot training_snapshot(const TrainingState& state) {
  check_finite(state);
  return {{state.steps, dump_config(state.config), state.counters(), state.files}, training_slices(state)};
}

std::string write_snapshot(const std::string& run_dir, const CheckpointConfig& config, const TrainingSnapshot& snapshot,
                           const RankInfo& ranks) {
  const auto path = save_checkpoint(run_dir, snapshot.contents, snapshot.slices, ranks);
  if (ranks.rank == 0) prune_checkpoints(run_dir, snapshot.contents.step, config.keep_last, config.keep_every);
  return path;
}

std::string save_training(const std::string& run_dir, const TrainingState& state) {
  auto& comm = state.comm;
  return write_snapshot(run_dir, state.config.checkpoint, training_snapshot(state),
                        {comm.rank(), comm.world(), [&] { comm.barrier(); }});
}

void resume_training(const CheckpointReader& reader, TrainingState& state) {
  check_has_state(reader);
  check_same_model(reader, state.config);
  check_same_tensors(reader, state.model);
  check_same_data(reader, state.loader.fingerprint(), state.config.data.allow_change);
  std::optional<StorageScope> storage(state.comm);
  for (const auto& shard : state.optimizer->shards()) {
    for_each_piece(shard, shard.elements, [&](const std::string& name, const Param&, int64_t first, const at::Tensor& values) {
      if (!reader.tensors().count(name)) {
        fail_user("{}: has no optimiser state '{}', which optim.name: {} needs; set optim.name back to that of the checkpoint",
                  reader.path(), name, enum_name(state.config.optim.name));
      }
      reader.read_into(name, first, values);
    });
  }
  load_router_biases(reader, state.model);
  storage.reset();
  state.optimizer->publish();
  state.load_counters(reader.contents().state, reader.contents().step, reader.path() + "/state.json");
}

namespace {

/// Keys that change no tensor's shape, but what is computed with the weights.
void warn_of_other_model(const CheckpointReader& reader, const ModelConfig& model) {
  const Config before = checkpoint_config(reader);
  Config now = before;
  now.model = model;
  const auto ignored = ignored_keys(now);
  std::vector<std::string> changed;
  for (const auto& [key, first, second, on_resume] : differences(before, now)) {
    const bool unused = std::ranges::any_of(ignored, [&, &key = key](const Ignored& other) { return other.covers(key); });
    if (on_resume == OnResume::kRefuse && !unused) changed.push_back(fmt::format("{} was {}, is {}", key, first, second));
  }
  if (!changed.empty())
    log_warning(fmt::format("{}: its weights were trained in a model that computes something else: {}", reader.path(),
                            fmt::join(changed, "; ")));
}

}  // namespace

void check_initial_weights(const InitialWeights& initial, const nn::Model& model) {
  const auto& [reader, allow] = initial;
  const auto allowed = [&, &allow = allow](const std::string& name) {
    return std::ranges::any_of(allow,
                               [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
  };
  std::set<std::string> known;
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      known.insert(p.name);
      const auto found = reader.tensors().find(p.name);
      if (found == reader.tensors().end()) {
        if (!allowed(p.name))
          fail_user("{}: has no tensor '{}', which this model needs; --init-allow '{}' starts it untrained", reader.path(),
                    p.name, p.name);
      } else if (found->second.shape != p.shape) {
        fail_user("{}: tensor '{}' is [{}], this model needs [{}]", reader.path(), p.name, fmt::join(found->second.shape, ", "),
                  fmt::join(p.shape, ", "));
      }
    }
  }
  for (const auto* router : model.routers()) {
    if (router->bias.defined()) known.insert(bias_name(*router));
  }
  for (const auto& tensor : reader.tensors()) {
    const std::string& name = tensor.first;
    if (!is_state(name) && !known.count(name) && !allowed(name))
      fail_user("{}: this model has no tensor '{}'; --init-allow '{}' leaves it out", reader.path(), name, name);
  }
  warn_of_other_model(reader, model.config());
}

void begin_training(const std::optional<CheckpointReader>& checkpoint, const std::optional<InitialWeights>& initial,
                    TrainingState& state) {
  if (checkpoint) {
    resume_training(*checkpoint, state);
    return;
  }
  if (initial) check_initial_weights(*initial, state.model);
  state.optimizer->initialise(state.config.train.seed);
  if (!initial) return;
  const auto& reader = initial->reader;
  std::optional<StorageScope> storage(state.comm);
  for (const auto& shard : state.optimizer->shards()) {
    for_each_piece(shard, shard.elements, [&](const std::string& name, const Param&, int64_t first, const at::Tensor& values) {
      if (!is_state(name) && reader.tensors().count(name)) reader.read_into(name, first, values);
    });
  }
  for (auto* router : state.model.routers()) {
    const auto name = bias_name(*router);
    if (router->bias.defined() && reader.tensors().count(name)) router->bias.copy_(reader.read(name));
  }
  storage.reset();
  state.optimizer->publish();
}

void check_resumable(const CheckpointReader& reader, const Config& config, const Loader& loader) {
  check_has_state(reader);
  check_same_model(reader, config);
  check_same_tensors(reader, nn::Model(config.model, at::device(at::kMeta).dtype(at::kFloat)));
  check_same_data(reader, loader.fingerprint(), config.data.allow_change);
}

void load_weights(const CheckpointReader& reader, nn::Model& model) {
  check_same_tensors(reader, model);
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      reader.read_into(p.name, 0, unit->flat_params().narrow(0, p.offset, p.numel));
    }
  }
  load_router_biases(reader, model);
}

Config checkpoint_config(const CheckpointReader& reader) {
  return parse_config(reader.contents().config_yaml, reader.path() + "/config.yaml");
}

}  // namespace scatterlm
