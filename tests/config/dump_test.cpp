#include <cstdlib>
#include <filesystem>
#include <random>
#include <regex>

#include "lib/config/keys.h"
#include "tests/config/bad_input.h"
#include "tests/mutate.h"

#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

namespace {

/// Visitor that proposes "key=value" options over the whole allowed range of every key.
class RandomOptions {
 public:
  explicit RandomOptions(std::mt19937_64& rng) : rng_(rng) {}

  void key(const char* name, bool, const char*, const KeyTraits& = {}) { add(name, value_text(flip())); }
  void key(const char* name, int64_t, const char*, const KeyTraits& traits) {
    const Range& range = traits.range;
    const double top = flip() ? range.high : std::min(range.high, range.low + 64);
    add(name, value_text(static_cast<int64_t>(range.low + uniform() * (top - range.low))));
  }
  void key(const char* name, double, const char*, const KeyTraits& traits) { add(name, value_text(number(traits.range))); }
  void key(const char* name, std::optional<double>, const char*, const KeyTraits& traits) {
    add(name, value_text(flip() ? std::optional(number(traits.range)) : std::nullopt));
  }
  void key(const char* name, const std::string&, const char*, const KeyTraits& = {}) {
    const bool is_layers = prefix_ + name == "model.layers";
    add(name, is_layers ? "gqa+dense*" + std::to_string(1 + pick(rng_, 9)) + ", moa+moe" : value_text(text()));
  }
  void key(const char* name, const std::vector<double>&, const char*, const KeyTraits& traits) {
    add(name, value_text(std::vector<double>{number(traits.range), number(traits.range)}));
  }
  void key(const char* name, const std::vector<std::string>&, const char*, const KeyTraits& = {}) {
    add(name, value_text(std::vector<std::string>{text(), text()}));
  }
  void key(const char* name, const std::vector<BlendEntry>&, const char*, const KeyTraits& = {}) {
    std::vector<BlendEntry> blend;
    for (size_t i = pick(rng_, 3) + 1; i > 0; --i) blend.push_back({text(), flip() ? 1 : number({1e-12, 1e12})});
    add(name, value_text(blend));
  }
  template <class E>
  requires std::is_enum_v<E>
  void key(const char* name, E, const char*, const KeyTraits& = {}) {
    add(name, EnumNames<E>::values[pick(rng_, std::size(EnumNames<E>::values))]);
  }
  template <class S>
  void group(const char* name, S& fields, OnResume = OnResume::kAsGroup) {
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    fields.visit(*this);
    prefix_ = outer;
  }

  std::vector<std::string> options;

 private:
  void add(const char* name, const std::string& value) { options.push_back(prefix_ + name + "=" + value); }
  bool flip() { return pick(rng_, 2) == 0; }
  double uniform() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }
  double number(const Range& range) { return range.low + uniform() * (range.high - range.low); }
  std::string text() {
    static const char* const pieces[] = {"a", "B/", "null", "1e3", " ", ": ", "#", "\"", "\\",
                                         "'", "\n", "\t",   "{",   "]", ",",  "ü", "-"};
    std::string text;
    for (size_t i = pick(rng_, 5) + 1; i > 0; --i) text += pieces[pick(rng_, std::size(pieces))];
    return text;
  }

  std::mt19937_64& rng_;
  std::string prefix_;
};

bool is_accepted(const std::vector<std::string>& sets) { return error_of({kMinimal, sets, ""}) == "no error"; }

}  // namespace

TEST_CASE("every configuration of the repository reads back from its dump", "[config]") {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const Config config = load_config(entry.path());
    REQUIRE(parse_config(dump_config(config), "dump.yaml") == config);
    ++files;
  }
  REQUIRE(files > 0);
}

TEST_CASE("random configurations read back from their dumps", "[config]") {
  std::mt19937_64 rng(1);
  size_t accepted = 0;
  for (int round = 0; round < 40; ++round) {
    RandomOptions proposals(rng);
    Config defaults;
    defaults.visit(proposals);
    std::shuffle(proposals.options.begin(), proposals.options.end(), rng);
    std::vector<std::string> sets;
    for (const std::string& option : proposals.options) {
      sets.push_back(option);
      if (!is_accepted(sets)) sets.pop_back();  // contradicts the others
    }
    accepted += sets.size();
    const Config config = parse_config(kMinimal, "x.yaml", sets);
    const std::string dump = dump_config(config);
    INFO(dump);
    REQUIRE(parse_config(dump, "dump.yaml") == config);
    REQUIRE(dump_config(parse_config(dump, "dump.yaml")) == dump);
  }
  REQUIRE(accepted > 40 * 30);
}

TEST_CASE("texts and numbers survive the dump", "[config]") {
  Config config = parse_config(kMinimal, "x.yaml");
  config.run.dir = GENERATE("a b", "null", "1e3", "a: b", "a # b", "\"\\'", "two\nlines\t\x01\x7f", "[{*&!|>%@`", " ü ");
  config.data.train = {{config.run.dir, 1.0 / 3}, {"b.bin", 1}};
  config.optim.lr = GENERATE(0.1 + 0.2, 1.0 / 3, 5e-324, 123.45678901234567);
  REQUIRE(parse_config(dump_config(config), "dump.yaml") == config);
}

TEST_CASE("numbers are numbers for readers of YAML 1.1 too, to the same bits", "[config]") {
  // What PyYAML's resolver takes for a float or an integer.
  const std::regex number(R"([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|[-+]?(0|[1-9][0-9_]*))");
  REQUIRE_FALSE(std::regex_match("1e-05", number));
  for (const double value :
       {1e-5, 1e-8, 1.5e-7, 5e-324, 1e16, 1.7976931348623157e308, 0.1, 1.0 / 3, 0.0, 2.0, 123456.75, 1e15}) {
    const std::string text = value_text(value);
    INFO(text);
    REQUIRE(std::regex_match(text, number));
    REQUIRE(std::strtod(text.c_str(), nullptr) == value);
  }
  REQUIRE(value_text(1e-5) == "1.0e-05");
  REQUIRE_THAT(dump_config(parse_config(kMinimal, "x.yaml")), ContainsSubstring("  rms_norm_eps: 1.0e-05 "));
}

TEST_CASE("a dump leaves out what the run ignores", "[config]") {
  const std::string dump = dump_config(parse_config(kMinimal, "x.yaml"));
  REQUIRE_THAT(dump, ContainsSubstring("  moe:\n    num_experts: 8"));
  for (const char* absent : {"moa:", "dense:", "bias_update_rate:", "decay_steps:", "eval_interval:"}) {
    REQUIRE(dump.find(absent) == dump.npos);
  }
}

TEST_CASE("the list of keys has every key and fits 100 columns", "[config]") {
  const std::string text = describe_keys();
  for (const KeyInfo& key : list_keys(Config())) {
    if (!key.is_group)
      REQUIRE(text.find(key.path + " = " + key.value + "\n    " + key.expected + "\n    " + key.help) != text.npos);
  }
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    REQUIRE(end - begin <= 100);
  }
}
