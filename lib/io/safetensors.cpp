#include "lib/io/safetensors.h"

#include <ATen/ATen.h>

#include <cstring>

#include "lib/io/json.h"
#include "lib/util/error.h"
#include "lib/util/mapped_file.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

namespace scatterlm {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr uint64_t kLengthBytes = sizeof(uint64_t);
constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<std::string_view, at::ScalarType> kDtypes[] = {
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"F32", at::kFloat},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
};

using Entry = SafetensorsFile::Entry;

/// Reads one file's header; `where` opens every message.
struct HeaderReader {
  explicit HeaderReader(std::string where) : where(std::move(where)) {}

  std::string where;
  uint64_t data_bytes = 0;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail_user("{}: {}", where, fmt::format(text, std::forward<Args>(args)...));
  }

  /// `data` holds the whole file.
  void read(std::string_view data) {
    if (data.size() < kLengthBytes) refuse("{} bytes are too few for a header", data.size());
    uint64_t header_bytes;
    std::memcpy(&header_bytes, data.data(), kLengthBytes);
    if (header_bytes > kMaxHeader) refuse("header of {} bytes, at most {} are allowed", header_bytes, kMaxHeader);
    data.remove_prefix(kLengthBytes);
    if (header_bytes > data.size()) {
      refuse("header of {} bytes, but only {} follow: the file is cut off", header_bytes, data.size());
    }
    const auto header = data.substr(0, header_bytes);
    data_bytes = data.size() - header_bytes;
    if (header.empty() || header[0] != '{') refuse("header does not begin with '{{'");
    const json names = parse_json(header, where);
    for (const auto& [name, value] : names.items()) {
      if (name == kMetadata) {
        read_metadata(value);
      } else {
        entries.emplace(name, read_entry(name, value));
      }
    }
    check_layout();
  }

  void read_metadata(const json& value) {
    if (!value.is_object()) refuse("{} is not an object", kMetadata);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse("{}: value of {} is not a string", kMetadata, quote(key));
      metadata.emplace(key, text.get<std::string>());
    }
  }

  Entry read_entry(const std::string& name, const json& value) const {
    if (!value.is_object()) refuse("tensor {}: not an object", quote(name));
    const auto dtype_name = value.find("dtype");
    if (dtype_name == value.end() || !dtype_name->is_string()) refuse("tensor {}: dtype is not a string", quote(name));
    const auto dtype = parse_safetensors_dtype(dtype_name->get<std::string>());
    if (!dtype) refuse("tensor {}: dtype {} is not supported", quote(name), quote(dtype_name->get<std::string>()));
    Entry entry{*dtype, read_sizes(name, value, "shape"), 0, 0};
    const auto offsets = read_sizes(name, value, "data_offsets");
    if (offsets.size() != 2) refuse("tensor {}: data_offsets has {} numbers, not 2", quote(name), offsets.size());
    if (offsets[1] < offsets[0]) refuse("tensor {}: data ends at {}, before its begin {}", quote(name), offsets[1], offsets[0]);
    entry.begin = static_cast<uint64_t>(offsets[0]);
    entry.end = static_cast<uint64_t>(offsets[1]);
    const auto numel = checked_numel(entry.shape, entry.dtype);
    if (!numel) refuse("tensor {}: shape is too large", quote(name));
    const uint64_t bytes = static_cast<uint64_t>(*numel) * at::elementSize(entry.dtype);
    if (entry.end - entry.begin != bytes) {
      refuse("tensor {}: shape and dtype need {} bytes, data_offsets give {}", quote(name), bytes, entry.end - entry.begin);
    }
    return entry;
  }

  std::vector<int64_t> read_sizes(const std::string& name, const json& entry, const char* field) const {
    const auto list = entry.find(field);
    if (list == entry.end() || !list->is_array()) refuse("tensor {}: {} is not a list", quote(name), field);
    std::vector<int64_t> sizes;
    for (const auto& item : *list) {
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      if (!item.is_number_unsigned() || item.get<uint64_t>() > kMax) {
        refuse("tensor {}: {} holds something else than sizes", quote(name), field);
      }
      sizes.push_back(item.get<int64_t>());
    }
    return sizes;
  }

  /// The data is the tensors one after another: no hole, no overlap, no rest.
  void check_layout() const {
    std::vector<std::pair<const Entry*, const std::string*>> order;
    for (const auto& [name, entry] : entries) order.emplace_back(&entry, &name);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
    });
    uint64_t expected = 0;
    for (const auto& [entry, name] : order) {
      if (entry->begin != expected) {
        refuse("tensor {}: data begins at {}, but the one before ends at {}", quote(*name), entry->begin, expected);
      }
      expected = entry->end;
    }
    if (expected != data_bytes) refuse("tensors end at byte {} of {} bytes of data", expected, data_bytes);
  }
};

/// Header without its length, and the tensors in the order of their data.
std::string make_header(std::vector<const StreamedTensor*>& tensors, const std::map<std::string, std::string>& metadata,
                        const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const StreamedTensor* a, const StreamedTensor* b) {
    return std::pair(-static_cast<int64_t>(at::elementSize(a->dtype)), std::string_view(a->name)) <
           std::pair(-static_cast<int64_t>(at::elementSize(b->dtype)), std::string_view(b->name));
  });
  json header;
  header[kMetadata] = metadata;
  header[kMetadata]["format"] = "pt";  // Hugging Face's reader refuses metadata without it
  uint64_t offset = 0;
  for (const auto* tensor : tensors) {
    const auto dtype = safetensors_dtype(tensor->dtype);
    if (!dtype) fail("{}: safetensors: tensor {} has dtype {}", path, quote(tensor->name), at::toString(tensor->dtype));
    if (header.contains(tensor->name)) fail("{}: safetensors: two tensors are named {}", path, quote(tensor->name));
    const uint64_t end = offset + tensor->bytes();
    header[tensor->name] = {{"dtype", *dtype}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  if (text.size() > kMaxHeader)
    fail("{}: safetensors: header of {} bytes, at most {} are allowed", path, text.size(), kMaxHeader);
  return text;
}

}  // namespace

std::optional<std::string> safetensors_dtype(at::ScalarType dtype) {
  for (const auto& [name, type] : kDtypes) {
    if (type == dtype) return std::string(name);
  }
  return std::nullopt;
}

std::optional<at::ScalarType> parse_safetensors_dtype(std::string_view name) {
  for (const auto& [known, type] : kDtypes) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  // A size of 0 counts as 1 until the end: LibTorch's strides multiply the sizes around it.
  auto bytes = static_cast<int64_t>(at::elementSize(dtype));
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return empty ? 0 : bytes / static_cast<int64_t>(at::elementSize(dtype));
}

uint64_t StreamedTensor::bytes() const {
  const auto numel = checked_numel(shape, dtype);
  if (!numel) fail("[StreamedTensor] {} is too large", quote(name));
  return static_cast<uint64_t>(*numel) * at::elementSize(dtype);
}

int64_t total_bytes(const std::vector<StreamedTensor>& tensors) {
  int64_t total = 0;
  for (const auto& tensor : tensors) total += static_cast<int64_t>(tensor.bytes());
  return total;
}

std::vector<StreamedTensor> with_progress(std::vector<StreamedTensor> tensors, std::function<void(int64_t)> progress) {
  const auto count = [progress = std::move(progress), done = std::make_shared<int64_t>(0)](std::string_view bytes) {
    progress(*done += std::ssize(bytes));
  };
  for (auto& tensor : tensors) {
    tensor.write = [count, write = std::move(tensor.write)](const StreamedTensor::Sink& out) {
      write([&](std::string_view bytes) {
        out(bytes);
        count(bytes);
      });
    };
  }
  return tensors;
}

FileDigest stream_safetensors(const std::string& path, const std::vector<StreamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const StreamedTensor*> ordered;
  for (const auto& tensor : tensors) ordered.push_back(&tensor);
  const std::string header = make_header(ordered, metadata, path);
  const uint64_t header_bytes = header.size();
  FileWriter file(path);
  file.write(&header_bytes, kLengthBytes);
  file.write(header);
  for (const auto* tensor : ordered) {
    uint64_t written = 0;
    tensor->write([&](std::string_view bytes) {
      file.write(bytes);
      written += bytes.size();
    });
    if (written != tensor->bytes())
      fail("{}: safetensors: tensor {} has {} bytes, not {}", path, quote(tensor->name), written, tensor->bytes());
  }
  return file.commit();
}

FileDigest write_safetensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::vector<StreamedTensor> streamed;
  for (const auto& [name, tensor] : tensors) {
    const auto write = [tensor = tensor](const StreamedTensor::Sink& out) {
      const at::Tensor data = tensor.detach().to(at::kCPU).contiguous();
      out({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
    };
    streamed.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), write});
  }
  return stream_safetensors(path, streamed, metadata);
}

struct SafetensorsFile::State {
  std::string path;
  MappedFile file;
  HeaderReader header;
  const std::byte* data() const { return file.data() + (file.size() - header.data_bytes); }
  /// Memory of large pieces that were read; small ones are not worth the call.
  void release(const std::byte* data, size_t bytes) const {
    const auto begin = static_cast<size_t>(data - file.data());
    if (bytes >= (1 << 20)) file.release(begin, begin + bytes);
  }
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : state_(new State{path, MappedFile(path), HeaderReader(path + ": safetensors")}) {
  state_->header.read({reinterpret_cast<const char*>(state_->file.data()), state_->file.size()});
}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

const std::map<std::string, Entry>& SafetensorsFile::entries() const { return state_->header.entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return state_->header.metadata; }

const Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries().find(name);
  if (found == entries().end()) fail_user("{}: safetensors: no tensor is named {}", state_->path, quote(name));
  return found->second;
}

void SafetensorsFile::copy_elements(const std::string& name, int64_t begin, int64_t end, void* out) const {
  const Entry& from = entry(name);
  const auto width = static_cast<int64_t>(at::elementSize(from.dtype));
  if (begin < 0 || end < begin || end > static_cast<int64_t>(from.end - from.begin) / width) {
    fail("{}: safetensors: tensor {} has no elements {} to {}", state_->path, quote(name), begin, end);
  }
  if (begin == end) return;
  const auto* data = state_->data() + from.begin + begin * width;
  const auto bytes = static_cast<size_t>((end - begin) * width);
  std::memcpy(out, data, bytes);
  state_->release(data, bytes);
}

void SafetensorsFile::stream(const std::string& name, const StreamedTensor::Sink& out) const {
  constexpr uint64_t kPiece = 64 << 20;
  const Entry& from = entry(name);
  for (uint64_t begin = from.begin; begin < from.end;) {
    const uint64_t bytes = std::min(from.end - begin, kPiece);
    out({reinterpret_cast<const char*>(state_->data() + begin), bytes});
    state_->release(state_->data() + begin, bytes);
    begin += bytes;
  }
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const Entry& from = entry(name);
  // A byte of a BOOL may be anything; a C++ bool may not.
  auto out = at::empty(from.shape, from.dtype == at::kBool ? at::kByte : from.dtype);
  copy_elements(name, 0, out.numel(), out.mutable_data_ptr());
  return out.to(from.dtype);
}

}  // namespace scatterlm
