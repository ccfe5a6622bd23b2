#include "lib/tokenizer/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/data/corpus.h"
#include "lib/data/token_file.h"
#include "lib/tokenizer/inspect.h"
#include "lib/util/error.h"
#include "tests/data/files.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// The text of a token file, end-of-text as '$'.
std::string text_of(const std::string& path) {
  const TokenFile file(path, TokenWidth::kAuto);
  std::vector<int64_t> tokens(static_cast<size_t>(file.num_tokens()));
  file.read(0, file.num_tokens(), 257, tokens.data());
  std::string text;
  for (int64_t token : tokens) text += token == 256 ? '$' : static_cast<char>(token);
  return text;
}

}  // namespace

TEST_CASE("prepare: documents in bytewise order, each n-th held out, end-of-text after each") {
  const TempDir dir;
  // '.' < '/' < '0' < 'B' < 'a': the order of bytes is neither that of folders first nor that of a dictionary.
  dir.write("in/a/x.h", "4");
  dir.write("in/a.h", "3");
  dir.write("in/a0.h", "5");
  dir.write("in/B.h", "2");
  dir.write("in/A/deep/y.h", std::string("1\0\xff", 3));
  dir.write("in/empty.h", "");
  dir.write("in/note.txt", "no");
  const Prepared prepared = prepare({.inputs = {dir / "in"}, .glob = "*.h", .out = dir / "out", .val_every = 3});
  REQUIRE(text_of(dir / "out/train.bin") == std::string("1\0\xff$2$4$5$", 10));
  REQUIRE(text_of(dir / "out/val.bin") == "3$$");
  REQUIRE(prepared.train.documents == 4);
  REQUIRE(prepared.train.tokens == 10);
  REQUIRE(prepared.train.files == std::vector<std::string>{dir / "out/train.bin"});
  REQUIRE(prepared.validation.documents == 2);
  REQUIRE(prepared.bytes == 7);

  prepare({.inputs = {dir / "in"}, .glob = "*.h", .out = dir / "again", .val_every = 3});
  REQUIRE(read_bytes(dir / "again/train.bin") == read_bytes(dir / "out/train.bin"));
}

TEST_CASE("prepare: held-out files and folders of their own") {
  const TempDir dir;
  dir.write("train/a.h", "a");
  dir.write("train/b.h", "b");
  dir.write("val/c.h", "c");
  const std::string lines = dir.write("d.jsonl", "{\"text\": \"d\"}\n{\"text\": \"e\"}\n");
  const Prepared prepared = prepare({.inputs = {dir / "train"}, .out = dir / "out", .val_inputs = {dir / "val", lines}});
  REQUIRE(text_of(dir / "out/train.bin") == "a$b$");
  REQUIRE(text_of(dir / "out/val.bin") == "c$d$e$");
  REQUIRE(prepared.train.documents == 2);
  REQUIRE(prepared.validation.documents == 3);
  REQUIRE(prepared.bytes == 5);
}

TEST_CASE("prepare: files by name need not match, inputs keep their order") {
  const TempDir dir;
  const std::string one = dir.write("z.txt", "one");
  dir.write("f/b.h", "b");
  dir.write("f/a.h", "a");
  prepare({.inputs = {one, dir / "f"}, .glob = "*.h", .out = dir / "out"});
  REQUIRE(text_of(dir / "out/train.bin") == "one$a$b$");
  REQUIRE(!std::filesystem::exists(dir / "out/val.bin"));
}

TEST_CASE("prepare: shards are cut at their size, documents straddle them") {
  const TempDir dir;
  const std::string a = dir.write("a", "abcde");
  const std::string b = dir.write("b", "fg");
  const std::string c = dir.write("c", "v");
  const Prepared prepared = prepare({.inputs = {a, b, c}, .out = dir / "out", .val_every = 3, .shard_tokens = 4});
  REQUIRE(prepared.train.files.size() == 3);
  REQUIRE(text_of(dir / "out/train_000000.bin") == "abcd");
  REQUIRE(text_of(dir / "out/train_000001.bin") == "e$fg");
  REQUIRE(text_of(dir / "out/train_000002.bin") == "$");
  REQUIRE(text_of(dir / "out/val.bin") == "v$");
}

TEST_CASE("prepare: what one file cannot hold becomes shards") {
  const TempDir dir;
  const std::string a = dir.write("a", "abcde"), b = dir.write("b", "f"), c = dir.write("c", "vwxyz");
  const Prepared prepared = prepare({.inputs = {a, b, c}, .out = dir / "out", .val_every = 3, .most_tokens = 4});
  REQUIRE(prepared.train.files == std::vector<std::string>{dir / "out/train_000000.bin", dir / "out/train_000001.bin"});
  REQUIRE(text_of(dir / "out/train_000000.bin") == "abcd");
  REQUIRE(text_of(dir / "out/train_000001.bin") == "e$f$");
  REQUIRE(prepared.validation.files == std::vector<std::string>{dir / "out/val_000000.bin", dir / "out/val_000001.bin"});
  REQUIRE(text_of(dir / "out/val_000001.bin") == "z$");
  prepare({.inputs = {a, b}, .out = dir / "fits", .most_tokens = 8});
  REQUIRE(text_of(dir / "fits/train.bin") == "abcde$f$");
}

TEST_CASE("prepare: a document of several pieces") {
  const TempDir dir;
  std::string text(20'000'000, 'x');
  for (size_t i = 0; i < text.size(); i += 997) text[i] = 'y';
  const std::string path = dir.write("large", text);
  prepare({.inputs = {path}, .out = dir / "out"});
  const bool same = text_of(dir / "out/train.bin") == text + "$";  // outside of REQUIRE, which would print both
  REQUIRE(same);
}

TEST_CASE("prepare: errors") {
  const TempDir dir;
  const std::string a = dir.write("in/a.h", "a");
  const auto run = [&](PrepareOptions options) {
    options.out = options.out.empty() ? dir / "out" : options.out;
    prepare(options);
  };
  REQUIRE_THROWS_WITH(run({.inputs = {dir / "gone"}}), (dir / "gone") + ": no such file or folder");
  REQUIRE_THROWS_WITH(run({.inputs = {dir / "in"}, .glob = "*.cc"}),
                      (dir / "in") + ": no file below it has a name like '*.cc' (--glob)");
  const std::string pipe = dir / "pipe";
  REQUIRE(std::system(("mkfifo " + pipe).c_str()) == 0);
  REQUIRE_THROWS_WITH(run({.inputs = {a, pipe}}), pipe + ": cannot open: not a regular file");
  REQUIRE_THROWS_WITH(run({.inputs = {a}, .val_every = 1}),
                      "--val-every 1 leaves no document to train on: give 0 or at least 2");
  REQUIRE_THROWS_WITH(run({.inputs = {a}, .val_every = 2}), "--val-every 2 holds out none of 1 documents: give at most 1");
  REQUIRE_THROWS_WITH(run({.inputs = {a}, .tokenizer = "bpe"}), "unknown tokenizer 'bpe': neither bytes nor a file or folder");
  REQUIRE_THROWS_WITH(run({.inputs = {a}, .out = a}), a + ": --out must be a folder");
  REQUIRE_THROWS_WITH(run({.inputs = {a}, .out = a + "/x"}), a + "/x: cannot create: Not a directory");
  REQUIRE(!std::filesystem::exists(dir / "out"));

  const std::string old = dir.write("out/train_000007.bin", "x");
  REQUIRE_THROWS_WITH(run({.inputs = {a}}),
                      old + ": exists; remove the token files of --out " + (dir / "out") + " or choose another folder");
}

TEST_CASE("prepare: a failure leaves no token file behind") {
  const TempDir dir;
  const std::string a = dir.write("a", "abcdefgh"), lines = dir.write("lines.jsonl", "{}\n");
  REQUIRE_THROWS_WITH(prepare({.inputs = {a, lines}, .out = dir / "out", .shard_tokens = 4}), lines + ":1: 'text' is missing");
  REQUIRE(!std::filesystem::exists(dir / "out"));
}

TEST_CASE("prepare: one process at a time, and what a killed one left is removed") {
  const TempDir dir;
  const std::string a = dir.write("a", "ab");
  const std::string old = dir.write("out/train_000000.bin.0123abcd.tmp", "left"), own = dir.write("out/notes.tmp", "kept");
  const int folder = open((dir / "out").c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(flock(folder, LOCK_EX) == 0);
  const std::string busy =
      (dir / "out") + ": another process prepares data in this folder; wait for its end, or choose another --out";
  REQUIRE_THROWS_WITH(prepare({.inputs = {a}, .out = dir / "out"}), busy);
  REQUIRE(std::filesystem::exists(old));
  close(folder);
  prepare({.inputs = {a}, .out = dir / "out"});
  REQUIRE(text_of(dir / "out/train.bin") == "ab$");
  REQUIRE(!std::filesystem::exists(old));
  REQUIRE(std::filesystem::exists(own));
}

TEST_CASE("prepared files have a checksum, which inspect and training look at") {
  const TempDir dir;
  prepare({.inputs = {dir.write("a", "some text")}, .out = dir / "out"});
  std::string bytes = read_bytes(dir / "out/train.bin");
  bytes[1024 + 4] = '\0';  // another token of the vocabulary
  const std::string path = dir.write("out/damaged.bin", bytes);
  const std::string message =
      path + ": damaged: its tokens do not have the checksum that its header holds; copy or prepare it again";
  REQUIRE_THROWS_WITH(inspect({.path = path}), message);
  DataConfig data;
  data.train = {{path, 1}};
  REQUIRE_THROWS_WITH(Corpus(data.train, "data.train", data, 257), message);
  data.train = {{dir.write("plain.bin", bytes.replace(12, 20, 20, '\0')), 1}};
  REQUIRE_NOTHROW(Corpus(data.train, "data.train", data, 257));
}

TEST_CASE("inspect: counts and decoded samples of text") {
  const TempDir dir;
  dir.write("in/a.h", "aab\n");
  prepare({.inputs = {dir / "in"}, .out = dir / "out"});
  const std::string path = dir / "out/train.bin";
  const std::string text = inspect({.path = path, .samples = 0});
  REQUIRE(text == path +
                      ": llm.c, uint16, 5 tokens\n"
                      "5 tokens, 4 different, the largest 256\n"
                      "1 end-of-text tokens (256)\n"
                      "most common: 97 \"a\" 40 %, 10 \"\\n\" 20 %, 98 \"b\" 20 %, 256 20 %\n");
  const std::string sampled = inspect({.path = path, .samples = 5, .seed = 1});
  REQUIRE(sampled == inspect({.path = path, .samples = 5, .seed = 1}));
  REQUIRE(sampled != inspect({.path = path, .samples = 5, .seed = 2}));
  REQUIRE_THAT(sampled, ContainsSubstring("b\\n\"\n"));
}

TEST_CASE("inspect: tokens of another tokenizer are shown as numbers") {
  const TempDir dir;
  dir.write("m.idx", megatron_index(4, 4, {2, 1}, {0, 1, 2}));
  dir.write("m.bin", tokens_as<int32_t>({7, 50256, 7}));
  const std::string text = inspect({.path = dir / "m", .samples = 1, .seed = 0});
  REQUIRE_THAT(text, ContainsSubstring("m.bin: Megatron, int32, 3 tokens, 2 documents\n"
                                       "3 tokens, 2 different, the largest 50256\n"
                                       "most common: 7 66.7 %, 50256 33.3 %\n"));
  REQUIRE_THAT(text, ContainsSubstring("7\n"));

  const std::string raw = dir.write("raw.bin", tokens_as<uint16_t>({1, 2, 3}));
  REQUIRE_THAT(inspect({.path = raw, .raw_dtype = TokenWidth::kUint16}), ContainsSubstring("raw.bin: raw, uint16, 3 tokens\n"));
}
