// Every key of a configuration file: name, default, range and help stand here once. Reading, --set, the dump, `config
// keys` and "unknown key, did you mean" are visitors over these lists. Key names are Hugging Face's where it has one.
//
// A visitor has
//   v.key(name, field, help)                  Field = bool | int64_t | double | std::string | an enum of enums.h
//   v.key(name, field, help, traits)                  | std::vector<double> | std::vector<std::string>
//                                                     | std::vector<BlendEntry>
//   v.group(name, struct)                     a nested struct
//   v.group(name, struct, OnResume::kAccept)  the same; what its keys do when a run is resumed, unless they say otherwise
// with traits = Range{low, high} | OnResume::kWarn | {Range{low, high}, OnResume::kWarn}, see key_traits.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/config/enums.h"
#include "lib/config/key_traits.h"
#include "lib/config/model_config.h"

namespace scatterlm {

/// One source of a blend.
struct BlendEntry {
  std::string path;
  double weight = 1;

  bool operator==(const BlendEntry&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("path", path, "token file, shard pattern or Megatron prefix");
    v.key("weight", weight, "share of the samples, relative to the other entries", Range{1e-12, 1e12});
  }
};

struct DataConfig {
  std::vector<BlendEntry> train;       // YAML: one path, a list of paths, or a list of {path, weight}
  std::vector<BlendEntry> validation;  // likewise
  TokenWidth raw_dtype = TokenWidth::kAuto;
  int64_t eot_token = -1;
  bool intra_document_masking = false;
  std::string tokenizer = "bytes";
  bool allow_change = false;

  bool operator==(const DataConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("train", train, "token files to train on: a path, a list of paths, or a list of {path, weight}");
    v.key("validation", validation, "token files held out for evaluation", OnResume::kAccept);
    v.key("raw_dtype", raw_dtype, "width of tokens in files without a header");
    v.key("eot_token", eot_token, "token between documents; -1 = none", Range{-1, 1 << 24});
    v.key("intra_document_masking", intra_document_masking, "attention stays inside a document (needs boundaries)");
    v.key("tokenizer", tokenizer, "how text became tokens: bytes, or a tokenizer's file or folder", OnResume::kAccept);
    v.key("allow_change", allow_change,
          "resume although the files of data.train are others than up to the checkpoint, with a warning", OnResume::kAccept);
  }
};

struct TrainConfig {
  int64_t seed = 1234;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t sequence_length = 256;
  int64_t global_batch_tokens = 4096;
  int64_t micro_batch_size = 0;
  Recompute recompute = Recompute::kNone;
  TrainDtype dtype = TrainDtype::kAuto;
  DataType grad_dtype = DataType::kFloat32;
  DeviceChoice device = DeviceChoice::kAuto;
  Toggle deterministic = Toggle::kAuto;
  int64_t threads = 0;
  int64_t eval_interval = 0;
  int64_t eval_tokens = 0;
  std::vector<std::string> eval_tasks;
  int64_t max_nonfinite_steps = 10;
  double max_minutes = 0;

  bool operator==(const TrainConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("seed", seed, "seed of initial weights and sample order", Range{0, 9e15});
    v.key("steps", steps, "optimiser steps to train; or give tokens", Range{0, 1e9});
    v.key("tokens", tokens, "tokens to train; or give steps", Range{0, 1e16});
    v.key("sequence_length", sequence_length, "tokens of one sequence", {Range{1, 1 << 24}, OnResume::kRefuse});
    v.key("global_batch_tokens", global_batch_tokens, "tokens of one optimiser step, over all ranks and micro-batches",
          {Range{1, 1e9}, OnResume::kRefuse});
    v.key("micro_batch_size", micro_batch_size, "sequences of one forward pass; 0 = the whole batch of a rank",
          Range{0, 1 << 20});
    v.key("recompute", recompute, "what the backward pass computes again instead of keeping it: less memory, same bits",
          OnResume::kAccept);
    v.key("dtype", dtype, "weights and activations; auto: bfloat16 on a GPU, float32 on a CPU");
    v.key("grad_dtype", grad_dtype, "gradients; bfloat16 takes half the memory (needs train.dtype: bfloat16)", OnResume::kWarn);
    v.key("device", device, "auto: a GPU if there is one");
    v.key("deterministic", deterministic, "same seed, same bits; auto: true on a CPU, false on a GPU");
    v.key("threads", threads, "CPU threads; 0 = all cores", Range{0, 1024});
    v.key("eval_interval", eval_interval, "steps between evaluations; 0 = only at the end",
          {Range{0, 1e12}, OnResume::kAccept});
    v.key("eval_tokens", eval_tokens, "tokens of one evaluation, spread evenly over the validation set; 0 = all of it",
          {Range{0, 1e15}, OnResume::kAccept});
    v.key("eval_tasks", eval_tasks, "files of multiple-choice tasks to evaluate as well: llm.c's format or JSON lines",
          OnResume::kAccept);
    v.key("max_nonfinite_steps", max_nonfinite_steps,
          "stop after this many steps in a row with a loss or gradient that is not finite", {Range{1, 1e9}, OnResume::kAccept});
    v.key("max_minutes", max_minutes, "save and stop with exit code 75 after this time; 0 = no limit",
          {Range{0, 1e9}, OnResume::kAccept});
  }
};

struct OptimConfig {
  OptimizerName name = OptimizerName::kAdamw;
  double lr = 1e-3;
  double router_lr_scale = 1;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double momentum = 0.95;
  int64_t newton_schulz_steps = 5;
  double weight_decay = 0.1;
  bool decay_embeddings = false;
  double clip_grad_norm = 1.0;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  double min_lr_ratio = 0.1;
  DataType state_dtype = DataType::kFloat32;

  bool operator==(const OptimConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("name", name, "adamw; or muon for matrices of layers, AdamW for embeddings, head, routers, norms and biases");
    v.key("lr", lr, "peak learning rate", Range{0, 1e3});
    v.key("router_lr_scale", router_lr_scale, "learning rate of routers as a multiple of the others'", Range{0, 1e3});
    v.key("betas", betas, "AdamW's two decay rates", Range{0, 1});
    v.key("eps", eps, "AdamW's epsilon", Range{1e-20, 1});
    v.key("momentum", momentum, "Muon's momentum (optim.name: muon)", Range{0, 1});
    v.key("newton_schulz_steps", newton_schulz_steps, "Newton-Schulz iterations of a Muon update", Range{1, 100});
    v.key("weight_decay", weight_decay, "decoupled weight decay of matrices; norms and biases have none", Range{0, 10});
    v.key("decay_embeddings", decay_embeddings, "embeddings decay as well");
    v.key("clip_grad_norm", clip_grad_norm, "global gradient norm is scaled down to this; 0 = no clipping", Range{0, 1e9});
    v.key("schedule", schedule, "learning rate after the warm-up; wsd is constant, then linear over decay_steps");
    v.key("warmup_steps", warmup_steps, "steps of linear warm-up", Range{0, 1e12});
    v.key("decay_steps", decay_steps, "length of the final decay (schedule: wsd)", Range{0, 1e12});
    v.key("min_lr_ratio", min_lr_ratio, "final learning rate as a share of the peak", Range{0, 1});
    v.key("state_dtype", state_dtype,
          "moments and master weights; bfloat16 keeps no master copy (needs train.dtype: bfloat16)");
  }
};

struct ParallelConfig {
  int64_t zero = 1;
  DataType reduce_dtype = DataType::kFloat32;
  double timeout_s = 300;
  double start_timeout_s = 60;

  bool operator==(const ParallelConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("zero", zero, "ZeRO stage, what ranks shard: 0 = nothing, 1 = optimiser state, 2 = gradients as well", Range{0, 2});
    v.key("reduce_dtype", reduce_dtype, "dtype of gradients while ranks exchange them", OnResume::kWarn);
    v.key("timeout_s", timeout_s, "end the run when ranks wait this long for another one", Range{0.1, 1e6});
    v.key("start_timeout_s", start_timeout_s, "end the run when not all ranks have started by then", Range{0.1, 1e6});
  }
};

struct CheckpointConfig {
  int64_t save_interval = 0;
  int64_t keep_last = 2;
  int64_t keep_every = 0;
  bool async = false;
  double timeout_s = 1800;
  double lock_timeout_s = 120;

  bool operator==(const CheckpointConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("save_interval", save_interval, "steps between checkpoints; 0 = only at the end", Range{0, 1e12});
    v.key("keep_last", keep_last, "newest checkpoints to keep", Range{1, 1e6});
    v.key("keep_every", keep_every, "also keep those whose step is a multiple of this; 0 = none", Range{0, 1e12});
    v.key("async", async, "write asynchronously, from a copy of weights and optimiser state in host memory");
    v.key("timeout_s", timeout_s, "end the run when ranks wait this long for one that reads or writes files", Range{0.1, 1e6});
    v.key("lock_timeout_s", lock_timeout_s, "wait this long for another process that trains in the run's folder",
          Range{0, 1e6});
  }
};

struct RunConfig {
  std::string name = "";
  std::string dir = "runs";

  bool operator==(const RunConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("name", name, "folder of the run inside dir; empty = name of the configuration file");
    v.key("dir", dir, "where runs are kept");
  }
};

struct LogConfig {
  int64_t interval = 10;
  bool tensorboard = true;
  int64_t trace_step = 0;

  bool operator==(const LogConfig&) const = default;

  template <class V>
  void visit(V& v) {
    v.key("interval", interval, "steps between console lines and metrics", Range{1, 1e9});
    v.key("tensorboard", tensorboard, "write TensorBoard event files");
    v.key("trace_step", trace_step, "write a profiler trace of this step, from 3 on, on rank 0; 0 = none", Range{0, 1e9});
  }
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  LogConfig log;

  bool operator==(const Config&) const = default;

  template <class V>
  void visit(V& v) {
    v.group("run", run, OnResume::kAccept);
    v.group("model", model, OnResume::kRefuse);
    v.group("data", data, OnResume::kWarn);
    v.group("train", train, OnResume::kWarn);
    v.group("optim", optim, OnResume::kWarn);
    v.group("parallel", parallel, OnResume::kAccept);
    v.group("checkpoint", checkpoint, OnResume::kAccept);
    v.group("log", log, OnResume::kAccept);
  }
};

}  // namespace scatterlm
