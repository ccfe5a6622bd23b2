#include "lib/io/json.h"
#include "lib/tokenizer/bpe_builder.h"
#include "lib/tokenizer/read_tokenizer.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

using nlohmann::json;

std::string short_text(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// Part of tokenizer.json; keys that are absent are null.
class JsonPart {
 public:
  JsonPart(const json& value, std::string where) : value_(value), where_(std::move(where)) {}

  const json& get(const char* key) const {
    static const json null;
    const auto found = value_.find(key);  // end() when it is no object
    return found == value_.end() ? null : *found;
  }
  bool flag(const char* key, bool absent) const {
    const json& value = get(key);
    if (value.is_null()) return absent;
    if (!value.is_boolean()) refuse(key);
    return value.get<bool>();
  }
  std::string text(const char* key) const {
    if (!get(key).is_string()) refuse(key);
    return get(key).get<std::string>();
  }
  const json& list(const char* key) const {
    if (!get(key).is_array()) refuse(key);
    return get(key);
  }
  /// Null, false, 0 and "" are what the key is when it has no effect.
  void require_unset(const char* key) const {
    const json& value = get(key);
    if (value.is_null() || value == false || value == 0 || value == "") return;
    refuse(key);
  }
  [[noreturn]] void refuse(const char* key) const {
    fail_user("{}: '{}: {}' is not supported", where_, key, short_text(get(key)));
  }
  const std::string& where() const { return where_; }

 private:
  const json& value_;
  std::string where_;
};

/// Whether the text is normalized to NFC.
bool read_normalizer(const json& value, const std::string& where) {
  if (value.is_null()) return false;
  const JsonPart part(value, where);
  const std::string type = part.text("type");
  if (type == "NFC") return true;
  if (type != "Sequence") part.refuse("type");
  bool nfc = false;
  for (const json& step : part.list("normalizers")) nfc = read_normalizer(step, where) || nfc;
  return nfc;
}

/// The steps of a pre-tokenizer, and whether it ends in the bytes of a byte-level one.
struct PreTokenizerReader {
  PreTokenizer result;
  bool byte_level = false;

  void read(const json& value, const std::string& where) {
    const JsonPart part(value, where);
    if (value.is_null()) return;
    if (byte_level) fail_user("{}: nothing may come after ByteLevel, here it is {}", where, short_text(value));
    const std::string type = part.text("type");
    if (type == "Sequence") {
      for (const json& step : part.list("pretokenizers")) read(step, where);
    } else if (type == "Split") {
      read_split(part);
    } else if (type == "Digits") {
      add(part.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", where);
    } else if (type == "ByteLevel") {
      read_byte_level(part);
    } else {
      part.refuse("type");
    }
  }

 private:
  void add(std::string_view pattern, const std::string& where, bool drop_between = false) {
    constexpr size_t kMostSteps = 32;
    if (result.steps.size() == kMostSteps) fail_user("{}: more than {} steps", where, kMostSteps);
    result.steps.push_back({SplitPattern(pattern, where), drop_between});
  }

  void read_split(const JsonPart& part) {
    const JsonPart pattern(part.get("pattern"), part.where() + ".pattern");
    const bool literal = pattern.get("Regex").is_null();
    const std::string text = pattern.text(literal ? "String" : "Regex");
    const std::string behavior = part.text("behavior");
    const bool invert = part.flag("invert", false);
    // What is removed is what does not match.
    const bool drop_between = behavior == "Removed" && invert;
    if (behavior != "Isolated" && !drop_between) part.refuse("behavior");
    std::string escaped;
    for (const char c : text) {
      if (std::string_view(R"(\^$.|?*+()[]{}-#&)").find(c) != std::string_view::npos) escaped += '\\';
      escaped += c;
    }
    add(literal ? escaped : text, part.where(), drop_between);
  }

  void read_byte_level(const JsonPart& part) {
    result.add_prefix_space = part.flag("add_prefix_space", true);
    if (result.add_prefix_space && !result.steps.empty()) part.refuse("add_prefix_space");  // it would prefix every piece
    if (part.flag("use_regex", true)) add(known_pattern("gpt2"), part.where());
    byte_level = true;
  }
};

void read_merges(const json& merges, const std::string& where, BpeBuilder& builder) {
  builder.begin_merges(merges.size());
  const bool pairs = !merges.empty() && merges[0].is_array();
  for (const json& merge : merges) {
    if (pairs) {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
        fail_user("{}: merge {} is not a list of two tokens", where, short_text(merge));
      builder.add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
      continue;
    }
    const std::string_view text = merge.is_string() ? std::string_view(merge.get_ref<const std::string&>()) : "";
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos)
      fail_user("{}: merge {} is not two tokens with a space between them", where, short_text(merge));
    builder.add_merge(text.substr(0, space), text.substr(space + 1));
  }
}

void read_added(const json& list, const std::string& where, BpeBuilder& builder) {
  for (const json& value : list) {
    const JsonPart part(value, where);
    AddedToken token{.content = part.text("content"),
                     .special = part.flag("special", false),
                     .normalized = part.flag("normalized", true),
                     .strip_left = part.flag("lstrip", false),
                     .strip_right = part.flag("rstrip", false)};
    token.id = token_number(part.get("id"), token.content, where);
    if (part.flag("single_word", false)) part.refuse("single_word");
    builder.add_added(std::move(token));
  }
}

void check_model(const JsonPart& model) {
  if (!model.get("type").is_null() && model.get("type") != "BPE") model.refuse("type");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    model.require_unset(key);
}

}  // namespace

BpeModel read_tokenizer_json(std::string_view text, const std::string& where) {
  const json file = parse_json(text, where);
  const JsonPart root(file, where);
  const JsonPart model(root.get("model"), where + ": model");
  check_model(model);
  PreTokenizerReader pre_tokenizer;
  pre_tokenizer.read(root.get("pre_tokenizer"), where + ": pre_tokenizer");
  if (!pre_tokenizer.byte_level) {
    fail_user("{}: pre_tokenizer has no ByteLevel: only byte-level BPE is supported, not that of SentencePiece", where);
  }
  BpeBuilder builder(where);
  builder.model().nfc = read_normalizer(root.get("normalizer"), where + ": normalizer");
  builder.model().whole_pieces_first = model.flag("ignore_merges", false);
  builder.add_vocabulary(model.get("vocab"));
  read_merges(model.list("merges"), where, builder);
  if (!root.get("added_tokens").is_null()) read_added(root.list("added_tokens"), where + ": added_tokens", builder);
  return builder.finish(std::move(pre_tokenizer.result));
}

}  // namespace scatterlm
