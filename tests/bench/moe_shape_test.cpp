#include "lib/bench/moe_shape.h"

#include "tests/catch.h"

namespace scatterlm::bench {

TEST_CASE("shapes: numbers, names and lists", "[shapes]") {
  const auto shapes = parse_shapes("7B-fine;8,16,24,4,2;24576,1536,512,64,4");
  REQUIRE(shapes.size() == 3);
  REQUIRE(shapes[0].text() == "24576,1536,256,128,8");
  REQUIRE((shapes[1].tokens == 8 && shapes[1].model == 16 && shapes[1].width == 24 && shapes[1].experts == 4));
  REQUIRE(shapes[1].top_k == 2);
  REQUIRE(shapes[1].rows() == 16);
  REQUIRE(shapes[1].name.empty());
  REQUIRE(shapes[2].name == "7B-mid");
  REQUIRE(parse_shapes("published").size() == 8);
  REQUIRE(parse_shapes("published;1,8,8,1,1").size() == 9);
}

TEST_CASE("shapes: errors", "[shapes]") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"", "--shapes: '' is neither T,D,F,E,K nor published nor one of 1.4B-fine, 7B-fine, "},
      {"24576,1536", "'24576,1536' is neither T,D,F,E,K"},
      {"1,8,8,2,1;", "'' is neither T,D,F,E,K"},
      {"7B-fin", "'7B-fin' is neither"},
      {"8,16,24,4,two", "'two' in '8,16,24,4,two' must be a whole number from 1 to 2^31 - 1"},
      {"8,16,0,4,2", "'0' in '8,16,0,4,2' must be a whole number"},
      {"8,16,-8,4,2", "'-8' in '8,16,-8,4,2' must be a whole number"},
      {"8,16, 24,4,2", "' 24' in '8,16, 24,4,2' must be a whole number"},
      {"8,16,99999999999999999999,4,2", "must be a whole number"},
      {"8,16,24,2,3", "K = 3 in '8,16,24,2,3' is more than E = 2"},
      {"1073741824,8,8,4,2", "T*K of '1073741824,8,8,4,2' must be below 2^31"},
  }));
  REQUIRE_THROWS_WITH(parse_shapes(text), ContainsSubstring(message));
}

TEST_CASE("shapes: what the kernels take", "[shapes]") {
  REQUIRE_NOTHROW(require_kernel_shape({.tokens = 1, .model = 8, .width = 16, .experts = 1, .top_k = 1}));
  REQUIRE_THROWS_WITH(require_kernel_shape({.tokens = 1, .model = 12, .width = 16, .experts = 1, .top_k = 1}),
                      ContainsSubstring("D and F of '1,12,16,1,1' must be multiples of 8"));
  REQUIRE_THROWS(require_kernel_shape({.tokens = 1, .model = 8, .width = 4, .experts = 1, .top_k = 1}));
}

}  // namespace scatterlm::bench
