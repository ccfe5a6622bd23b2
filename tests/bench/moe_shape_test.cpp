#include "lib/bench/moe_shape.h"

#include "tests/catch.h"

namespace scatterlm::bench {

TEST_CASE("shapes: numbers, names and lists", "[shapes]") {
  const auto shapes = parse_moe_shapes("7B-fine;8,16,24,4,2;24576,1536,512,64,4");
  REQUIRE(shapes.size() == 3);
  REQUIRE(text_of(shapes[0].sizes()) == "24576,1536,256,128,8");
  REQUIRE((shapes[1].tokens == 8 && shapes[1].model == 16 && shapes[1].width == 24 && shapes[1].experts == 4));
  REQUIRE(shapes[1].top_k == 2);
  REQUIRE(shapes[1].rows() == 16);
  REQUIRE(shapes[1].name.empty());
  REQUIRE(shapes[2].name == "7B-mid");
  REQUIRE(parse_moe_shapes("published").size() == 8);
  REQUIRE(parse_moe_shapes("published;1,8,8,1,1").size() == 9);
}

TEST_CASE("shapes: errors", "[shapes]") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"",
       "--shapes: '' is neither T,D,F,E,K nor one of published, granularity, sparsity, rounding, inference, 1.4B-fine, 7B-fine, "},
      {"24576,1536", "'24576,1536' is neither T,D,F,E,K"},
      {"1,8,8,2,1;", "'' is neither T,D,F,E,K"},
      {"7B-fin", "'7B-fin' is neither"},
      {"8,16,24,4,two", "'two' in '8,16,24,4,two' must be a whole number from 1 to 2^31 - 1"},
      {"8,16,0,4,2", "'0' in '8,16,0,4,2' must be a whole number"},
      {"8,16,-8,4,2", "'-8' in '8,16,-8,4,2' must be a whole number"},
      {"8,16, 24,4,2", "' 24' in '8,16, 24,4,2' must be a whole number"},
      {"8,16,99999999999999999999,4,2", "must be a whole number"},
      {"8,16,24,2,3", "K = 3 in '8,16,24,2,3' is more than E = 2"},
      {"1,12,16,1,1", "D and F of '1,12,16,1,1' must be multiples of 8"},
      {"1,8,4,1,1", "D and F of '1,8,4,1,1' must be multiples of 8"},
      {"1073741824,8,8,4,2", "T*K of '1073741824,8,8,4,2' must be below 2^31"},
  }));
  REQUIRE_THROWS_WITH(parse_moe_shapes(text), ContainsSubstring(message));
}

TEST_CASE("shapes: sets of the papers", "[shapes]") {
  const auto granularity = parse_moe_shapes("granularity"), sparsity = parse_moe_shapes("sparsity");
  REQUIRE(text_of(granularity.front().sizes()) == "16384,4096,8192,8,1");
  REQUIRE(text_of(granularity.back().sizes()) == "16384,4096,512,128,16");
  for (const auto& shape : granularity) REQUIRE((shape.top_k * shape.width == 8192 && shape.experts * shape.width == 65536));
  REQUIRE(text_of(sparsity.front().sizes()) == "16384,4096,1024,64,1");
  REQUIRE(text_of(sparsity.back().sizes()) == "16384,4096,1024,64,32");
  for (const auto& shape : sparsity) REQUIRE(shape.beside_all_dense);
  REQUIRE_FALSE(parse_moe_shapes("published")[0].beside_all_dense);
  const auto inference = parse_moe_shapes("inference");
  REQUIRE(inference.size() == 8);
  REQUIRE(text_of(inference[0].sizes()) == "1,2048,1024,64,8");
  REQUIRE(text_of(inference[7].sizes()) == "512,4096,14336,8,2");
}

}  // namespace scatterlm::bench
