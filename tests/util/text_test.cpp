#include "lib/util/text.h"

#include <limits>

#include "lib/util/escape.h"
#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("durations have two units and never 60 seconds") {
  REQUIRE(format_duration(0) == "0.0s");
  REQUIRE(format_duration(4.16) == "4.2s");
  REQUIRE(format_duration(9.94) == "9.9s");
  REQUIRE(format_duration(9.96) == "10s");
  REQUIRE(format_duration(59.4) == "59s");
  REQUIRE(format_duration(59.6) == "1m00s");
  REQUIRE(format_duration(192) == "3m12s");
  REQUIRE(format_duration(3599.7) == "1h00m");
  REQUIRE(format_duration(3720) == "1h02m");
  REQUIRE(format_duration(2 * 86400 + 3 * 3600) == "2d03h");
  REQUIRE(format_duration(-1) == "?");
  REQUIRE(format_duration(std::numeric_limits<double>::infinity()) == "?");
  REQUIRE(format_duration(std::numeric_limits<double>::quiet_NaN()) == "?");
}

TEST_CASE("counts have three significant digits") {
  REQUIRE(format_count(0) == "0");
  REQUIRE(format_count(0.25) == "0.25");
  REQUIRE(format_count(999) == "999");
  REQUIRE(format_count(999.6) == "1k");
  REQUIRE(format_count(22512) == "22.5k");
  REQUIRE(format_count(999499) == "999k");
  REQUIRE(format_count(999500) == "1M");
  REQUIRE(format_count(2.5e6) == "2.5M");
  REQUIRE(format_count(1.2367e9) == "1.24B");
  REQUIRE(format_count(3e12) == "3T");
  REQUIRE(format_count(12345e12) == "12345T");
}

TEST_CASE("bytes have binary prefixes") {
  REQUIRE(format_bytes(0) == "0 B");
  REQUIRE(format_bytes(1023) == "1023 B");
  REQUIRE(format_bytes(1024) == "1 KiB");
  REQUIRE(format_bytes(37.0 * (1 << 20)) == "37 MiB");
  REQUIRE(format_bytes(1000.0 * (1 << 20)) == "0.977 GiB");
  REQUIRE(format_bytes(1.5 * (1 << 30)) == "1.5 GiB");
}

TEST_CASE("edit distance") {
  REQUIRE(edit_distance("", "") == 0);
  REQUIRE(edit_distance("", "abc") == 3);
  REQUIRE(edit_distance("abc", "") == 3);
  REQUIRE(edit_distance("num_layers", "num_layers") == 0);
  REQUIRE(edit_distance("abcd", "abd") == 1);
  REQUIRE(edit_distance("abd", "abcd") == 1);
  REQUIRE(edit_distance("kitten", "sitting") == 3);
  REQUIRE(edit_distance("flaw", "lawn") == 2);
}

TEST_CASE("a line drops its least important fields first") {
  const std::vector<LineField> fields = {{"step 1/9", 0}, {"loss 2.5", 1}, {"aux 1.0", 3}, {"eta 5s", 2}};
  REQUIRE(fit_line(fields, 80) == "step 1/9 | loss 2.5 | aux 1.0 | eta 5s");
  REQUIRE(fit_line(fields, 38) == "step 1/9 | loss 2.5 | aux 1.0 | eta 5s");
  REQUIRE(fit_line(fields, 37) == "step 1/9 | loss 2.5 | eta 5s");
  REQUIRE(fit_line(fields, 27) == "step 1/9 | loss 2.5");
  REQUIRE(fit_line(fields, 8) == "step 1/9");
  REQUIRE(fit_line(fields, 4) == "step");
  REQUIRE(fit_line({}, 4).empty());
  REQUIRE(fit_line({{"a", 1}, {"b", 1}}, 2).empty());
}

TEST_CASE("the first line of a text") {
  REQUIRE(first_line("").empty());
  REQUIRE(first_line("one") == "one");
  REQUIRE(first_line("one\ntwo\nthree") == "one");
}

TEST_CASE("control characters are escaped, everything else stays") {
  REQUIRE(escape_control("a\x1b[31m\n\x7f\tü") == "a\\x1b[31m\\x0a\\x7f\\x09ü");
  REQUIRE(escape_control(std::string_view("a\0b", 3)) == "a\\x00b");
}
