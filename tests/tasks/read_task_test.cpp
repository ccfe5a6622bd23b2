#include "lib/tasks/read_task.h"

#include "lib/util/error.h"
#include "tests/mutate.h"
#include "tests/tasks/task_files.h"
#include "tests/tokenizer/bpe_files.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

using Tokens = std::vector<uint32_t>;

/// Its message, or "no error".
template <class Read>
std::string error_in(Read&& read) {
  try {
    read();
    return "no error";
  } catch (const Error& error) {
    if (error.code() != kExitUser) throw std::logic_error("not a user error");
    return error.what();
  }
}

std::string llmc_error(const std::string& file) {
  return error_in([&] { read_llmc_task(file, "t.bin"); });
}

/// A valid file with another number as uint16 number `index` of its examples.
std::string changed(int64_t index, uint16_t value) {
  return llmc_task(kQuestions).replace(static_cast<size_t>(1024 + 2 * index), 2, packed<uint16_t>({value}));
}

std::vector<TaskExample> read_lines(const std::string& text, const Tokenizer& tokenizer = ByteTokenizer()) {
  return read_jsonl_task(text, "t.jsonl", tokenizer);
}

TaskChoice only_choice(const std::string& context, const std::string& choice, const Tokenizer& tokenizer = ByteTokenizer()) {
  const nlohmann::json line = {{"context", context}, {"choices", {choice, "other"}}, {"answer", 0}};
  return read_lines(line.dump(), tokenizer).at(0).choices.at(0);
}

const TokenizerFiles kSmall{.folder = "small", .content = {{"tokenizer.json", small_tokenizer(kSmallMerges).dump()}}};

/// A byte model that reads 8 tokens.
Config byte_config() {
  Config config;
  config.model.vocab_size = 257;
  config.train.sequence_length = 8;
  return config;
}

const std::string kLine = R"({"context": "ab", "choices": [" c", " de"], "answer": 1})";

}  // namespace

TEST_CASE("an llm.c task: contexts with each of their choices") {
  const auto examples = read_llmc_task(llmc_task(kQuestions), "t.bin");
  REQUIRE(examples.size() == 2);
  REQUIRE(examples[0].answer == 1);
  REQUIRE(examples[0].choices.size() == 2);
  REQUIRE(examples[0].choices[0].tokens == Tokens{10, 20, 30, 1, 2});
  REQUIRE(examples[0].choices[0].context == 3);
  REQUIRE(examples[0].choices[0].length == 2);
  REQUIRE(examples[0].choices[1].tokens == Tokens{10, 20, 30, 3});
  REQUIRE(examples[1].answer == 2);
  REQUIRE(examples[1].choices[1].tokens == Tokens{40, 5, 6, 7});
  REQUIRE(examples[1].choices[1].context == 1);
}

TEST_CASE("an llm.c task: a file that ends anywhere is refused with the place") {
  const auto whole = llmc_task(kQuestions);
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const auto message = llmc_error(whole.substr(0, size));
    REQUIRE(message.starts_with("t.bin: "));
    REQUIRE((message.find("truncated") != message.npos || message.find("damaged at byte") != message.npos));
  }
  REQUIRE(llmc_error("") == "t.bin: truncated: its header has 1024 bytes, the file 0");
  REQUIRE(llmc_error(whole.substr(0, 1030)) ==
          "t.bin: truncated: example 0 at byte 1024 has 28 bytes, the file ends 6 bytes after its beginning");
  REQUIRE(llmc_error(whole.substr(0, 1052)) == "t.bin: truncated: its header says 2 examples, it ends after 1");
}

TEST_CASE("an llm.c task: every number that lies is named with its place") {
  // 65535, 28 bytes, index 0, label 1, 2 choices, 3 tokens of context, ..., 2 tokens of a choice, ..., 1 token, ...
  REQUIRE(llmc_error(changed(0, 7)) == "t.bin: damaged at byte 1024: the mark of example 0 is 7, must be from 65535 to 65535");
  REQUIRE_THAT(llmc_error(changed(1, 65534)), ContainsSubstring("truncated: example 0 at byte 1024 has 65534 bytes"));
  REQUIRE(llmc_error(changed(1, 2)) == "t.bin: damaged at byte 1028: the file or its example 0 ends before the index");
  REQUIRE(llmc_error(changed(1, 30)) == "t.bin: damaged at byte 1052: example 0 has 2 bytes more than its choices");
  REQUIRE_THAT(llmc_error(changed(1, 26)), ContainsSubstring("damaged at byte 1048: the size of a choice of example 0 is 1"));
  REQUIRE_THAT(llmc_error(changed(2, 1)), ContainsSubstring("damaged at byte 1028: the index of example 0 is 1"));
  REQUIRE(llmc_error(changed(3, 2)) ==
          "t.bin: damaged at byte 1032: the number of choices of example 0 is 2, must be from 3 to 64");
  REQUIRE_THAT(llmc_error(changed(3, 64)), ContainsSubstring("the label of example 0 is 64, must be from 0 to 63"));
  REQUIRE_THAT(llmc_error(changed(4, 65)), ContainsSubstring("the number of choices of example 0 is 65"));
  REQUIRE_THAT(llmc_error(changed(5, 0)), ContainsSubstring("the size of the context of example 0 is 0, must be from 1 to 8"));
  REQUIRE_THAT(llmc_error(changed(5, 9)), ContainsSubstring("the size of the context of example 0 is 9, must be from 1 to 8"));
  REQUIRE_THAT(llmc_error(changed(6, 50257)),
               ContainsSubstring("damaged at byte 1036: a token of example 0 is 50257, must be from 0 to 50256"));
  const auto with_header = [](int32_t magic, int32_t version, int32_t count) {
    return llmc_header(magic, version, count) + llmc_task(kQuestions).substr(1024);
  };
  REQUIRE(llmc_error(with_header(20240520, 1, 2)) == "t.bin: its magic number is 20240520, must be 20240522");
  REQUIRE(llmc_error(with_header(20240522, 2, 2)) == "t.bin: its version is 2, only 1 is known");
  REQUIRE(llmc_error(with_header(20240522, 1, -1)) == "t.bin: its header says -1 examples");
  REQUIRE(llmc_error(with_header(20240522, 1, 3)) == "t.bin: truncated: its header says 3 examples, it ends after 2");
  REQUIRE(llmc_error(with_header(20240522, 1, 1)) == "t.bin: damaged: its header says 1 examples, more bytes follow");
}

TEST_CASE("fuzz: multiple-choice tasks", "[fuzz]") {
  const bool llmc = GENERATE(true, false);
  const std::string valid = llmc ? llmc_task(kQuestions) : kLine + "\n" + kLine;
  std::mt19937_64 rng(7);
  int64_t accepted = 0;
  const int64_t count = fuzz_count() / 10;
  for (int64_t i = 0; i < count; ++i) {
    const auto broken = mutate(valid, rng);
    const auto message = error_in([&] {
      const auto examples = llmc ? read_llmc_task(broken, "t") : read_lines(broken);
      for (const auto& example : examples) {
        if (example.answer >= std::ssize(example.choices)) throw std::logic_error("no such answer");
        for (const auto& choice : example.choices) {
          if (choice.context < 1 || choice.context >= std::ssize(choice.tokens) || choice.length < 1)
            throw std::logic_error("no context or no choice");
        }
      }
    });
    REQUIRE(message.find('\n') == message.npos);
    accepted += message == "no error";
  }
  REQUIRE(accepted > 0);
  REQUIRE(accepted < count);
}

TEST_CASE("a task of JSON lines: choices as they stand, empty lines do not count") {
  const auto examples = read_lines("\r\n" + kLine + "\r\n\n" + kLine);
  REQUIRE(examples.size() == 2);
  REQUIRE(examples[1].answer == 1);
  const auto& choice = examples[1].choices.at(1);
  REQUIRE(choice.tokens == Tokens{'a', 'b', ' ', 'd', 'e'});
  REQUIRE(choice.context == 2);
  REQUIRE(choice.length == 2);  // without the space that separates
}

TEST_CASE("a task of JSON lines: white space that ends the context belongs to the choice") {
  const auto choice = only_choice("ab \n", "cd");
  REQUIRE(choice.tokens == Tokens{'a', 'b', ' ', '\n', 'c', 'd'});
  REQUIRE(choice.context == 2);
  REQUIRE(choice.length == 2);
  REQUIRE(only_choice("ab", "  c").length == 2);  // one space separates, the other one counts
  REQUIRE(only_choice("ab", " \xc3\xa9").length == 2);
}

TEST_CASE("a task of JSON lines: end of text stands for an empty context") {
  for (const char* context : {"", " "}) {
    const auto choice = only_choice(context, "x");
    REQUIRE(choice.tokens.front() == 256);
    REQUIRE(choice.context == 1);
    REQUIRE(choice.tokens.back() == 'x');
  }
}

TEST_CASE("a task of JSON lines: the choice begins behind the tokens of the context alone") {
  const auto tokenizer = make_tokenizer(kSmall);
  const auto token = [&](const char* bytes) { return tokenizer->find_token(bytes).value(); };
  const auto apart = only_choice("hello", " wor", *tokenizer);
  REQUIRE(apart.tokens == Tokens{token("hello"), token(" wor")});
  REQUIRE(apart.context == 1);
  const auto merged = only_choice("he", "llo w", *tokenizer);  // "hello" takes the place of "he"
  REQUIRE(merged.tokens == Tokens{token("hello"), token(" w")});
  REQUIRE(merged.context == 1);
  REQUIRE(merged.length == 5);
  const auto moved = only_choice("hello ", "wor", *tokenizer);
  REQUIRE(moved.tokens == apart.tokens);
  REQUIRE(error_in([&] { only_choice("he", "ll", *tokenizer); }) ==
          "t.jsonl:1: the tokenizer makes one token of choice 0 and the end of the context; begin the choice with a space");
}

TEST_CASE("a task of JSON lines: what is wrong is named with its line") {
  const auto message = [](const std::string& line) { return error_in([&] { read_lines(kLine + "\n" + line); }); };
  REQUIRE(message("{\"context\"") == "t.jsonl:2: not valid JSON (byte 11)");
  REQUIRE(message("[]") == "t.jsonl:2: 'context' is missing");
  REQUIRE(message(R"({"context": 1})") == "t.jsonl:2: 'context' is not a string");
  REQUIRE(message(R"({"context": "a", "choices": "b"})") == "t.jsonl:2: 'choices' is not a list");
  REQUIRE(message(R"({"context": "a", "choices": ["b"]})") == "t.jsonl:2: 'choices' has 1 elements, must have from 2 to 64");
  REQUIRE(message(R"({"context": "a", "choices": ["b", "c"]})") == "t.jsonl:2: 'answer' is missing");
  REQUIRE(message(R"({"context": "a", "choices": ["b", "c"], "answer": -1})") == "t.jsonl:2: 'answer' is not a count");
  REQUIRE(message(R"({"context": "a", "choices": ["b", "c"], "answer": 2})") ==
          "t.jsonl:2: 'answer' is 2, must be from 0 to 1, the number of one of 'choices'");
  REQUIRE(message(R"({"context": "a", "choices": ["b", 3], "answer": 1})") ==
          "t.jsonl:2: 'choices' holds something else than strings");
  REQUIRE(message(R"({"context": "a", "choices": ["b", " "], "answer": 1})") == "t.jsonl:2: choice 1 is empty");
  REQUIRE(error_in([] { read_lines("\n \n"); }) == "t.jsonl: holds no example");
}

TEST_CASE("tasks are read for a model: a context that is too long loses its beginning") {
  const TempDir dir;
  const auto path = dir.write("long.jsonl", R"({"context": "0123456789", "choices": [" abc", "12345678"], "answer": 0})"
                                            "\n" +
                                                kLine);
  const auto tasks = read_tasks({path}, byte_config(), {});
  REQUIRE(tasks.size() == 1);
  REQUIRE(tasks[0].name == "long");
  REQUIRE(std::string(tasks[0].length_unit) == "bytes");
  const auto& choices = tasks[0].examples[0].choices;
  REQUIRE(choices[0].tokens == Tokens{'5', '6', '7', '8', '9', ' ', 'a', 'b', 'c'});
  REQUIRE(choices[0].context == 5);
  REQUIRE(choices[1].tokens == Tokens{'9', '1', '2', '3', '4', '5', '6', '7', '8'});
  REQUIRE(choices[1].context == 1);
  REQUIRE(tasks[0].examples[1].choices[0].context == 2);
  const auto choice = dir.write("choice.jsonl", R"({"context": "0", "choices": ["a", "123456789"], "answer": 0})");
  REQUIRE(error_in([&] { read_tasks({choice}, byte_config(), {}); }) ==
          choice + ": example 0 has a choice of 9 tokens, but the model reads at most 8 (train.sequence_length)");
}

TEST_CASE("tasks are read for a model: what does not fit it is said") {
  const TempDir dir;
  const auto lines = dir.write("a.jsonl", kLine), again = dir.write("b/a.jsonl", kLine), other = dir.write("c.bin", "\1\2\3\4"),
             gpt2 = dir.write("gpt2.bin", llmc_task(kQuestions)),
             bare = dir.write("bare.jsonl", R"({"context": "", "choices": ["a", "b"], "answer": 0})");
  auto config = byte_config();
  const auto message = [&](const std::vector<std::string>& paths, const TokenizerFiles& tokenizer = {}) {
    return error_in([&] { read_tasks(paths, config, tokenizer); });
  };
  REQUIRE(message({lines, again}) ==
          again + ": its results would have the same name 'a' as those of " + lines + "; rename one of the files");
  REQUIRE(message({other}) ==
          other + ": is neither a file of llm.c's evaluation format nor one of JSON lines with context, choices and answer");
  REQUIRE_THAT(message({dir / "none.jsonl"}), ContainsSubstring("none.jsonl: cannot open: No such file or directory"));
  REQUIRE(message({bare}) == "no error");
  config.model.vocab_size = 256;
  REQUIRE(message({bare}) ==
          bare +
              ": example 0 has no context, and 'model.vocab_size: 256' has no end-of-text token 256 that could stand for it");
  REQUIRE(message({gpt2}) ==
          gpt2 +
              ": holds tokens of GPT-2, which has 50257, but 'model.vocab_size: 256'; a task as JSON lines fits "
              "any tokenizer");
  config.model.vocab_size = 50304;
  REQUIRE(message({gpt2}) == "no error");  // nothing says that the model learned from bytes
  config.data.eot_token = 50256;
  REQUIRE(message({gpt2}) == "no error");
  REQUIRE(
      message({lines}) ==
      lines +
          ": is text, but 'data.eot_token: 50256' is not the end of text of 'data.tokenizer: bytes', which is 256: the model learned "
          "the tokens of another tokenizer; name that one, or give a task of its tokens");
  config.data.eot_token = 2;  // as of a model whose tokenizer could not be imported
  REQUIRE_THAT(message({lines}), ContainsSubstring("'data.eot_token: 2' is not the end of text of 'data.tokenizer: bytes'"));
  config.data.eot_token = 256;
  REQUIRE_THAT(message({gpt2}), ContainsSubstring("but 'data.tokenizer: bytes' is another one, of 257 tokens"));
  REQUIRE(message({lines}) == "no error");
  config.data.tokenizer = "small";
  REQUIRE_THAT(message({gpt2}, kSmall), ContainsSubstring("but 'data.tokenizer: small' is another one, of 264 tokens"));
}

TEST_CASE("names of tasks are UTF-8, whatever their files are called") {
  const TempDir dir;
  REQUIRE(read_tasks({dir.write("n\xff\xc3\xa9.jsonl", kLine)}, byte_config(), {})[0].name == "n\xef\xbf\xbd\xc3\xa9");
}

TEST_CASE("tasks are told apart by their content") {
  const TempDir dir;
  const auto first = dir.write("1/a.jsonl", kLine), second = dir.write("2/a.jsonl", kLine + "\n" + kLine);
  const auto identity = [](const std::string& path) { return task_identity(read_tasks({path}, byte_config(), {})); };
  REQUIRE(identity(first).starts_with("a.jsonl (1 examples, hash "));
  REQUIRE(identity(first) != identity(second));
}
