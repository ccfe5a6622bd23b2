// The tokenizer of a run: that its data was made with it, and what travels with the run.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/fingerprint.h"
#include "lib/io/checkpoint.h"
#include "lib/tokenizer/tokenizer_files.h"

namespace scatterlm {

/// Reads data.tokenizer. Throws Error if it has more tokens than the model, no token data.eot_token, or if a token file was
/// made with another one, as far as files say so. Warns if data.eot_token is not its end of text.
TokenizerFiles read_run_tokenizer(const Config& config, const std::vector<FileFingerprint>& files);

/// Throws Error naming the first file that says it was made with another tokenizer.
void check_tokenizer(const TokenizerFiles& tokenizer, const std::string& name, const std::vector<FileFingerprint>& files);

/// The tokenizer of the run that saved a checkpoint: none if its data.tokenizer is bytes.
TokenizerFiles checkpoint_tokenizer(const CheckpointReader& checkpoint);

/// What the checkpoints of a run hold beside weights and state: its tokenizer, and all that travels with the checkpoint that it
/// starts from, if any. What came with another tokenizer stays behind, with a warning.
std::map<std::string, std::string> files_of_run(const TokenizerFiles& tokenizer, const CheckpointReader* start);

/// Copies into the folder of a run, from which they can be read again.
void write_tokenizer(const TokenizerFiles& tokenizer, const std::string& folder);

}  // namespace scatterlm
