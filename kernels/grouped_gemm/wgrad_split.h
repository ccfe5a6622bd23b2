// Split-k of the gradients of expert weights: which experts' rows are divided among blocks, and what number is which part of
// the work. Plain arithmetic on the device's offsets, the same on the host, where tests run it.
//
// A tile of dW[e] sums over all rows of e, so an expert with many rows would keep a few blocks busy while the others have
// nothing to do. The rows of the long experts, one expert after the other, are therefore cut into chunks of equal length, about
// what one block has to do in all ("stream-k", Osama et al., arXiv 2301.03598). The part of an expert in a chunk is a piece; a
// tile of a piece of a divided expert is a partial sum, kept in fp32 in a slot of a workspace. Work is taken in this order:
//   1. by number, a tile of a chunk: all of its pieces, one after another;
//   2. by number, the tiles of the other experts, which fill what time the chunks leave;
//   3. by each block, an equal share of the sums of the partial sums of a tile, in the order of the pieces, which go to dW.
// Nobody waits but 3 for 1. What is waited for has a lower number, so that a running block has it already and gets it done
// without waiting: there is no deadlock, whatever number of blocks run. The order of additions depends on the offsets and the
// number of blocks alone: the same bits always.
#pragma once
#include <cstdint>

#include "kernels/device/ceil_div.h"
#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

constexpr int kWgradBlockRows = 64;  ///< the unit of work: rows that a block multiplies at a time

/// The long experts and their chunks; lengths in blocks of rows.
struct WgradSplit {
  static constexpr int kMostExperts = 350;    ///< what shared memory has room for
  static constexpr int kShortestPiece = 6;    ///< storing and summing a partial sum takes about as long as multiplying so many
  static constexpr int kStore = 4;            ///< the time that storing a tile takes
  static constexpr int kMostChunksPerSm = 2;  ///< tiles of chunks for each multiprocessor
  static constexpr int kNone = INT32_MAX;

  struct Expert {
    int32_t first_block;  ///< of the long experts before it, and kStore for each
    uint16_t expert;
    uint16_t first_piece;  ///< number of partial sums of a tile of the divided experts before it
  };

  int32_t longest_tile;  ///< experts with more blocks are long; kNone: none is
  int32_t chunk_blocks;
  int32_t num_chunks;
  int32_t num_experts;  ///< long ones
  int32_t num_pieces;   ///< of divided experts
  int32_t padding;
  Expert experts[kMostExperts + 1];  ///< the entry behind the last has the end of the last

  /// A chunk that would end nearer than kShortestPiece to an end of an expert ends there. So expert i of the list has pieces
  /// in these chunks:
  SCATTERLM_HOST_DEVICE int first_chunk(int i) const { return (experts[i].first_block + kShortestPiece - 1) / chunk_blocks; }
  SCATTERLM_HOST_DEVICE int last_chunk(int i) const {
    return (experts[i + 1].first_block - kStore - kShortestPiece) / chunk_blocks;
  }
};

/// Most slots for partial sums, one for each side of the end of a chunk and each tile; 0 if no expert can be divided.
inline int64_t most_wgrad_slots(int64_t num_rows, int64_t tiles, int64_t num_sms) {
  constexpr int64_t kShortestChunk = 2 * WgradSplit::kShortestPiece - 1;  // - 1: incomplete blocks count as blocks
  const int64_t by_length = num_rows / (kWgradBlockRows * kShortestChunk);
  const int64_t by_sms = WgradSplit::kMostChunksPerSm * num_sms / tiles, chunks = by_length < by_sms ? by_length : by_sms;
  return chunks > 1 ? 2 * (chunks - 1) * tiles : 0;
}

SCATTERLM_HOST_DEVICE inline int wgrad_blocks(const int32_t* offsets_E1, int expert) {
  return ceil_div(offsets_E1[expert + 1] - offsets_E1[expert], kWgradBlockRows);
}

/// Of a number on each lane: the sum over the lanes before this one, and over all.
struct LaneSums {
  int before, total;
};

/// Chooses how the experts are divided among `num_sms` blocks when each has `tiles` tiles. Nothing is divided unless an expert
/// takes more than half of a block's even share of the work, so that balanced experts cost nothing. Otherwise all experts that
/// take more than a sixteenth are cut into chunks: the others wait for a tile that begins last.
/// Lanes: who calls together; kLanes, lane(), min(x), max(x), scan(x), sync(). A warp on the device, one thread on the host.
template <class Lanes>
class WgradPlanner {
 public:
  SCATTERLM_HOST_DEVICE WgradPlanner(const int32_t* offsets_E1, int num_experts, int tiles, int num_sms, WgradSplit& split)
      : offsets_(offsets_E1), num_experts_(num_experts), tiles_(tiles), num_sms_(num_sms), split_(split) {}

  SCATTERLM_HOST_DEVICE void plan() {
    all_blocks_ = ceil_div(offsets_[num_experts_], kWgradBlockRows);
    share_ = static_cast<int>(ceil_div(int64_t{all_blocks_} * tiles_, static_cast<int64_t>(num_sms_)));
    constexpr int kShortest = 2 * WgradSplit::kShortestPiece;
    longest_tile_ = share_ > 16 * kShortest ? share_ / 16 : kShortest;
    const int longest = longest_expert();
    if (longest > ceil_div(share_, 2) && longest > kShortest)
      while (!list_long_experts()) longest_tile_ *= 2;
    const int chunk_blocks = num_long_ > 0 ? best_chunk() : 1;
    if (Lanes::lane() == 0) {
      split_.longest_tile = num_long_ > 0 ? longest_tile_ : WgradSplit::kNone;
      split_.chunk_blocks = chunk_blocks;
      split_.num_experts = num_long_;
      split_.num_chunks = num_long_ > 0 ? split_.last_chunk(num_long_ - 1) + 1 : 0;
    }
    Lanes::sync();
    number_pieces();
  }

 private:
  SCATTERLM_HOST_DEVICE int longest_expert() const {
    int longest = 0;
#ifdef __CUDACC__
#pragma unroll 4
#endif
    for (int e = Lanes::lane(); e < num_experts_; e += Lanes::kLanes) {
      const int blocks = wgrad_blocks(offsets_, e);
      longest = blocks > longest ? blocks : longest;
    }
    return Lanes::max(longest);
  }

  /// False if there are too many.
  SCATTERLM_HOST_DEVICE bool list_long_experts() {
    num_long_ = long_blocks_ = 0;
    for (int first = 0; first < num_experts_; first += Lanes::kLanes) {
      const int e = first + Lanes::lane(), blocks = e < num_experts_ ? wgrad_blocks(offsets_, e) : 0;
      const bool is_long = blocks > longest_tile_;
      const LaneSums place = Lanes::scan(is_long), before = Lanes::scan(is_long ? blocks + WgradSplit::kStore : 0);
      const int at = num_long_ + place.before;
      if (is_long && at < WgradSplit::kMostExperts)
        split_.experts[at] = {long_blocks_ + before.before, static_cast<uint16_t>(e), 0};
      num_long_ += place.total;
      long_blocks_ += before.total;
    }
    if (num_long_ > WgradSplit::kMostExperts) return false;
    if (Lanes::lane() == 0) split_.experts[num_long_].first_block = long_blocks_;
    Lanes::sync();
    return true;
  }

  /// The length of chunk that promises to be fastest. In the time of one block of rows: storing a tile or a partial sum takes
  /// about kStore, adding a partial sum to a tile kSum; tiles of other experts come last, and the last begins late.
  SCATTERLM_HOST_DEVICE int best_chunk() const {
    constexpr int kStore = WgradSplit::kStore, kSum = 5;
    const int by_length = long_blocks_ / (2 * WgradSplit::kShortestPiece + kStore);
    const bool all_long = long_blocks_ - num_long_ * kStore >= all_blocks_;
    const int by_sms = WgradSplit::kMostChunksPerSm * num_sms_ / tiles_;
    const int most = by_length < by_sms ? by_length : by_sms;
    int best = long_blocks_, best_time = INT32_MAX;
    for (int chunks = Lanes::lane() + 1; chunks <= most; chunks += Lanes::kLanes) {
      const int length = ceil_div(long_blocks_, chunks), waves = ceil_div(chunks * tiles_, num_sms_);
      const int in_waves = waves * (length + kStore);
      const int in_shares = share_ + (all_long ? 0 : longest_tile_ / 4) + chunks * tiles_ * kStore / num_sms_;
      const int time = (in_waves > in_shares ? in_waves : in_shares) + chunks * tiles_ * kSum / num_sms_;
      if (time < best_time) {
        best = length;
        best_time = time;
      }
    }
    const int least = Lanes::min(best_time);
    return Lanes::max(best_time == least ? best : 0);
  }

  SCATTERLM_HOST_DEVICE void number_pieces() {
    int num_pieces = 0;
    for (int first = 0; first < num_long_; first += Lanes::kLanes) {
      const int i = first + Lanes::lane(), pieces = i < num_long_ ? split_.last_chunk(i) - split_.first_chunk(i) + 1 : 0;
      const LaneSums before = Lanes::scan(pieces > 1 ? pieces : 0);
      if (i < num_long_) split_.experts[i].first_piece = static_cast<uint16_t>(num_pieces + before.before);
      num_pieces += before.total;
    }
    if (Lanes::lane() == 0) split_.num_pieces = num_pieces;
  }

  const int32_t* offsets_;
  int num_experts_, tiles_, num_sms_;
  WgradSplit& split_;
  int all_blocks_ = 0, share_ = 0, longest_tile_ = 0, num_long_ = 0, long_blocks_ = 0;
};

/// A part of the gradients.
struct WgradPart {
  enum class Kind {
    kNothing,
    kTile,   ///< a tile, summed over the rows and stored
    kPiece,  ///< the same over the rows of a piece, kept in its slot
    kSum     ///< some elements of a tile, summed over the pieces and stored
  };
  Kind kind;
  int expert, m_tile, n_tile;
  int row, row_end;  ///< the rows to sum over; of kSum none
  int slot;        ///< kPiece: where the partial sum goes; kSum: that of the first piece, which the others follow `tiles` apart
  int num_pieces;  ///< of the tile; 0 for kTile
  int strip, strip_end;  ///< kSum: which of the kWgradStrips of the tile
  int chunk, listed;     ///< of a chunk: its number, and the expert's place in the list; -1 for others
};

/// Into so many strips the sums of a tile can be divided.
constexpr int kWgradStrips = 256;

/// Parts in the order of the head of this file. Tiles of an expert go down the columns of dW first, so that neighbours read the
/// same rows of b; those of a chunk follow one another, so that they read the same rows of both operands at about the same
/// time.
class WgradSplitSchedule {
 public:
  SCATTERLM_HOST_DEVICE WgradSplitSchedule(const int32_t* offsets_E1, int num_experts, int m_tiles, int n_tiles,
                                           const WgradSplit& split)
      : offsets_(offsets_E1), split_(split), m_tiles_(m_tiles), tiles_(m_tiles * n_tiles), all_tiles_(num_experts * tiles_) {}

  /// What has this number: a tile, or the first piece of a tile of a chunk. False when there is nothing of this number.
  SCATTERLM_HOST_DEVICE bool find(int number, WgradPart& part) const {
    const int of_chunks = split_.num_chunks * tiles_;
    if (number < of_chunks) {
      part.chunk = number / tiles_;
      set_tile(number - part.chunk * tiles_, part);
      part.listed = last_with([&](int i) { return split_.first_chunk(i) < part.chunk; });
      if (split_.last_chunk(part.listed) < part.chunk) ++part.listed;
      set_piece(part);
      return true;
    }
    number -= of_chunks;
    if (number >= all_tiles_) return false;
    part.expert = number / tiles_;
    set_tile(number - part.expert * tiles_, part);
    const bool is_long = wgrad_blocks(offsets_, part.expert) > split_.longest_tile;
    part.kind = is_long ? WgradPart::Kind::kNothing : WgradPart::Kind::kTile;
    part.row = offsets_[part.expert];
    part.row_end = is_long ? part.row : offsets_[part.expert + 1];
    part.slot = part.num_pieces = 0;
    part.chunk = part.listed = -1;
    return true;
  }

  /// The next piece of the same tile of the same chunk. False when there is none.
  SCATTERLM_HOST_DEVICE bool find_next(WgradPart& part) const {
    if (part.chunk < 0 || part.listed + 1 == split_.num_experts || split_.first_chunk(part.listed + 1) > part.chunk)
      return false;
    ++part.listed;
    set_piece(part);
    return true;
  }

  /// All partial sums in strips, the slots one after another.
  SCATTERLM_HOST_DEVICE int num_slot_strips() const { return split_.num_pieces * tiles_ * kWgradStrips; }
  /// The sum that strips [begin, end) of all slots begin with; returns where the next one begins. Of a tile with n pieces,
  /// those of slot i stand for strips 256 i / n ... 256 (i + 1) / n of the sum, so that all blocks read equally much.
  SCATTERLM_HOST_DEVICE int find_sum(int begin, int end, WgradPart& part) const {
    const int slot = begin / kWgradStrips, piece_of_all = slot / tiles_;
    const int listed = last_with([&](int i) { return split_.experts[i].first_piece <= piece_of_all; });
    const int piece = piece_of_all - split_.experts[listed].first_piece, first_strip = slot * kWgradStrips;
    const int next = end < first_strip + kWgradStrips ? end : first_strip + kWgradStrips;
    part.kind = WgradPart::Kind::kSum;
    part.expert = split_.experts[listed].expert;
    set_tile(slot - piece_of_all * tiles_, part);
    part.row = part.row_end = 0;
    part.slot = slot - piece * tiles_;
    part.num_pieces = split_.last_chunk(listed) - split_.first_chunk(listed) + 1;
    part.strip = (piece * kWgradStrips + begin - first_strip) / part.num_pieces;
    part.strip_end = (piece * kWgradStrips + next - first_strip) / part.num_pieces;
    part.chunk = part.listed = -1;
    return next;
  }

 private:
  /// The last expert of the list for which `holds`, as it does for those before; 0 if none.
  template <class Holds>
  SCATTERLM_HOST_DEVICE int last_with(Holds&& holds) const {
    int low = 0, high = split_.num_experts - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (holds(middle))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  SCATTERLM_HOST_DEVICE void set_tile(int index, WgradPart& part) const {
    part.n_tile = index / m_tiles_;
    part.m_tile = index - part.n_tile * m_tiles_;
  }

  /// From chunk, listed and tile of the part.
  SCATTERLM_HOST_DEVICE void set_piece(WgradPart& part) const {
    const int first = split_.first_chunk(part.listed), last = split_.last_chunk(part.listed);
    const auto& listed = split_.experts[part.listed];
    part.expert = listed.expert;
    part.kind = first < last ? WgradPart::Kind::kPiece : WgradPart::Kind::kTile;
    part.num_pieces = first < last ? last - first + 1 : 0;
    part.slot = (listed.first_piece + part.chunk - first) * tiles_ + part.n_tile * m_tiles_ + part.m_tile;
    const int begin = offsets_[part.expert], of_chunk = part.chunk * split_.chunk_blocks - listed.first_block;
    part.row = part.chunk > first ? begin + of_chunk * kWgradBlockRows : begin;
    part.row_end = part.chunk < last ? begin + (of_chunk + split_.chunk_blocks) * kWgradBlockRows : offsets_[part.expert + 1];
  }

  const int32_t* offsets_;
  const WgradSplit& split_;
  int m_tiles_, tiles_, all_tiles_;
};

}  // namespace scatterlm::kernels
