#include "lib/config/layers.h"

#include "tests/config/bad_input.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("a pattern names the kinds of all layers", "[config]") {
  const LayerKind gqa_dense{AttentionKind::kGqa, MlpKind::kDense}, moa_moe{AttentionKind::kMoa, MlpKind::kMoe};
  const std::vector<LayerKind> expected = {gqa_dense, moa_moe, moa_moe, gqa_dense};
  const auto pattern = GENERATE("gqa+dense, moa+moe*2, gqa+dense", "gqa+dense,moa+moe,moa+moe,gqa+dense*1",
                                " gqa + dense ,\tmoa+moe * 2,\n gqa+dense");
  REQUIRE((parse_layers(pattern) == expected));
}

TEST_CASE("a pattern mixes sliding windows with full attention", "[config]") {
  const auto layers = parse_layers("swa+moe*3, gqa+moe");
  REQUIRE(layers.size() == 4);
  REQUIRE(layers[2].attention == AttentionKind::kSwa);
  REQUIRE(layers[3].attention == AttentionKind::kGqa);
}

TEST_CASE("a bad pattern is refused", "[config]") {
  const auto pattern =
      GENERATE("", ",", "gqa", "gqa+", "+moe", "moe+gqa", "gqa+moe*", "gqa+moe*-1", "gqa+moe*0", "gqa+moe*4097", "gqa+moe*2x",
               "gqa+moe*99999999999999999999", "gqa+moe,", "gqa+moe*2*2", "gqa+moe+moe", "*3");
  REQUIRE_THROWS_AS(parse_layers(pattern), Error);
}

TEST_CASE("pattern and number of layers determine each other", "[config]") {
  const ModelConfig by_pattern = parse_config(kMinimal, "x.yaml", {"model.layers=gqa+dense, moa+moe*11"}).model;
  REQUIRE(by_pattern.num_hidden_layers == 12);
  const ModelConfig by_number = parse_config(kMinimal, "x.yaml", {"model.num_hidden_layers=3"}).model;
  REQUIRE((by_number.layer_kinds() == std::vector<LayerKind>(3, {AttentionKind::kGqa, MlpKind::kMoe})));
  ModelConfig by_hand;
  by_hand.num_hidden_layers = 5;
  REQUIRE_THROWS_WITH(by_hand.layer_kinds(), "model.layers 'gqa+moe*4' has 4 layers, model.num_hidden_layers is 5");
}
