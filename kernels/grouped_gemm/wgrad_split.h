// Split-k of the gradients of expert weights: which experts' rows are divided among blocks, and what number is which part of
// the work. Plain arithmetic on the device's offsets, the same on the host, where tests run it.
//
// A tile of dW[e] sums over all rows of e, so an expert with many rows would keep a few blocks busy while the others have
// nothing to do. The rows of such an expert are divided into pieces, and a tile of a piece is a partial sum, kept in fp32 in a
// slot of a workspace. Numbers, in the order in which blocks take them:
//   1. the partial sums of all pieces, longest work first;
//   2. the tiles of all experts; those of a divided expert are nothing to do;
//   3. for each partial sum one part of its tile's elements: the sum of that part over all pieces, in order, goes to dW.
// Nobody waits but 3 for 1. What is waited for has a lower number, so that a running block has it already and gets it done
// without waiting: there is no deadlock, whatever number of blocks run. The order of additions depends on the offsets and the
// number of blocks alone: the same bits always.
#pragma once
#include <cstdint>

#include "kernels/device/ceil_div.h"
#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

constexpr int kWgradBlockRows = 64;  ///< the unit of work: rows that a block multiplies at a time

/// The divided experts.
struct WgradSplit {
  static constexpr int kMostExperts = 704;  ///< what shared memory has room for
  static constexpr int kUndivided = INT32_MAX;
  static constexpr int kShortest = 12;        ///< blocks of rows below which storing a partial sum costs more than it gains
  static constexpr int kMostPiecesPerSm = 4;  ///< partial sums for each multiprocessor, all tiles counted

  struct Expert {
    uint16_t expert;
    uint16_t first_piece;  ///< number of pieces of the divided experts before it
  };

  int32_t longest_piece;  ///< blocks of rows; experts with more of them are divided. kUndivided: none is
  int32_t num_experts;
  int32_t num_slots;  ///< partial sums: pieces times tiles
  int32_t padding;
  Expert experts[kMostExperts];
};

/// The most partial sums there can be; 0 if no expert can be divided.
inline int64_t most_wgrad_slots(int64_t num_rows, int64_t num_experts, int64_t tiles, int64_t num_sms) {
  if (num_rows <= WgradSplit::kShortest * kWgradBlockRows) return 0;
  const int64_t pieces = ceil_div(num_rows, kWgradBlockRows * WgradSplit::kShortest / 2) + num_experts;
  const int64_t most = num_sms * WgradSplit::kMostPiecesPerSm;
  return pieces * tiles < most ? pieces * tiles : most;
}

SCATTERLM_HOST_DEVICE inline int wgrad_blocks(const int32_t* offsets_E1, int expert) {
  return ceil_div(offsets_E1[expert + 1] - offsets_E1[expert], kWgradBlockRows);
}

/// Of a number on each lane: the sum over the lanes before this one, and over all.
struct LaneSums {
  int before, total;
};

/// Chooses how the experts are divided among `num_sms` blocks when each has `tiles` tiles. Nothing is divided unless an expert
/// takes more than half of a block's even share of the work, so that balanced experts cost nothing.
/// Lanes: who calls together; kLanes, lane(), sum(x), max(x), scan(x), sync(). A warp on the device, one thread on the host.
template <class Lanes>
class WgradPlanner {
 public:
  SCATTERLM_HOST_DEVICE WgradPlanner(const int32_t* offsets_E1, int num_experts, int tiles, int num_sms, WgradSplit& split)
      : offsets_(offsets_E1), num_experts_(num_experts), tiles_(tiles), num_sms_(num_sms), split_(split) {}

  SCATTERLM_HOST_DEVICE void plan() {
    all_blocks_ = ceil_div(offsets_[num_experts_], kWgradBlockRows);
    share_ = static_cast<int>(ceil_div(int64_t{all_blocks_} * tiles_, static_cast<int64_t>(num_sms_)));
    const int longest = longest_expert();
    if (longest > ceil_div(share_, 2) && longest > WgradSplit::kShortest) list_long_experts();
    divide(best_length());
  }

 private:
  static constexpr int kCandidates = 7;

  /// Candidate i for the longest piece, in blocks of rows: from a whole share (i = 0) to a quarter of it.
  SCATTERLM_HOST_DEVICE int candidate(int i) const {
    const int blocks = ceil_div(2 * share_, 2 + i);
    return blocks > WgradSplit::kShortest ? blocks : WgradSplit::kShortest;
  }

  SCATTERLM_HOST_DEVICE int longest_expert() const {
    int longest = 0;
#pragma unroll 4
    for (int e = Lanes::lane(); e < num_experts_; e += Lanes::kLanes) {
      const int blocks = wgrad_blocks(offsets_, e);
      longest = blocks > longest ? blocks : longest;
    }
    return Lanes::max(longest);
  }

  /// Lists the experts that the shortest candidate would divide.
  SCATTERLM_HOST_DEVICE void list_long_experts() {
    const int shortest = candidate(kCandidates - 1);
    for (int first = 0; first < num_experts_; first += Lanes::kLanes) {
      const int e = first + Lanes::lane();
      const bool is_long = e < num_experts_ && wgrad_blocks(offsets_, e) > shortest;
      const LaneSums place = Lanes::scan(is_long);
      const int at = num_long_ + place.before;
      if (is_long && at < WgradSplit::kMostExperts) split_.experts[at] = {static_cast<uint16_t>(e), 0};
      num_long_ += place.total;
    }
    if (num_long_ > WgradSplit::kMostExperts) num_long_ = 0;
    Lanes::sync();
  }

  SCATTERLM_HOST_DEVICE int blocks_of(int listed) const {
    return listed < num_long_ ? wgrad_blocks(offsets_, split_.experts[listed].expert) : 0;
  }
  /// Pieces of an expert of this many blocks of rows; 0 if it is not divided.
  SCATTERLM_HOST_DEVICE static int pieces_of(int blocks, int longest_piece) {
    return blocks > longest_piece ? ceil_div(blocks, longest_piece) : 0;
  }

  /// The candidate that promises to be fastest. In the time of one block of rows: storing a tile or a partial sum takes about
  /// 3, summing a part of a tile 5 (128 KB read by one multiprocessor); undivided tiles come last, and the last begins late.
  SCATTERLM_HOST_DEVICE int best_length() const {
    constexpr int kStore = 3, kSum = 5;
    int best = WgradSplit::kUndivided, best_time = INT32_MAX;
    for (int i = 0; num_long_ > 0 && i < kCandidates; ++i) {
      const int length = candidate(i);
      int pieces = 0, blocks = 0;
      for (int listed = Lanes::lane(); listed < num_long_; listed += Lanes::kLanes) {
        const int of_expert = blocks_of(listed), pieces_of_expert = pieces_of(of_expert, length);
        pieces += pieces_of_expert;
        blocks += pieces_of_expert ? of_expert : 0;
      }
      const int64_t slots = int64_t{Lanes::sum(pieces)} * tiles_;
      if (slots > int64_t{WgradSplit::kMostPiecesPerSm} * num_sms_) continue;
      const int waves = ceil_div(static_cast<int>(slots), num_sms_);
      const int in_waves = waves * (length + kStore);
      const int in_shares = share_ + waves * kStore + (Lanes::sum(blocks) < all_blocks_ ? ceil_div(length, 4) : 0);
      const int time = (in_waves > in_shares ? in_waves : in_shares) + waves * kSum;
      if (time < best_time) {
        best = length;
        best_time = time;
      }
    }
    return best;
  }

  SCATTERLM_HOST_DEVICE void divide(int longest_piece) {
    int num_experts = 0, num_pieces = 0;
    for (int first = 0; first < num_long_; first += Lanes::kLanes) {
      const int listed = first + Lanes::lane(), pieces = pieces_of(blocks_of(listed), longest_piece);
      const uint16_t expert = listed < num_long_ ? split_.experts[listed].expert : 0;
      const LaneSums place = Lanes::scan(pieces > 0), piece = Lanes::scan(pieces);
      Lanes::sync();  // everyone has read what is overwritten
      if (pieces > 0) split_.experts[num_experts + place.before] = {expert, static_cast<uint16_t>(num_pieces + piece.before)};
      num_experts += place.total;
      num_pieces += piece.total;
      Lanes::sync();
    }
    if (Lanes::lane() != 0) return;
    split_.longest_piece = longest_piece;
    split_.num_experts = num_experts;
    split_.num_slots = num_pieces * tiles_;
  }

  const int32_t* offsets_;
  int num_experts_, tiles_, num_sms_;
  WgradSplit& split_;
  int all_blocks_ = 0, share_ = 0, num_long_ = 0;
};

/// A part of the gradients.
struct WgradPart {
  enum class Kind {
    kNothing,
    kTile,   ///< a tile, summed over the rows and stored
    kPiece,  ///< the same over the rows of a piece, kept in its slot
    kSum     ///< a part of the elements of a tile, summed over the pieces and stored
  };
  Kind kind;
  int expert, m_tile, n_tile;
  int row, row_end;  ///< the rows to sum over; of kSum none
  int slot;        ///< kPiece: where the partial sum goes; kSum: that of the first piece, which the others follow `tiles` apart
  int num_pieces;  ///< of the tile; 0 for kTile
  int piece;       ///< the piece; kSum: which part of num_pieces
};

/// Parts by number. Tiles of an expert go down the columns of dW first, so that neighbours read the same rows of b; those of a
/// piece follow one another, so that they read the same rows of both operands at about the same time.
class WgradSplitSchedule {
 public:
  SCATTERLM_HOST_DEVICE WgradSplitSchedule(const int32_t* offsets_E1, int num_experts, int m_tiles, int n_tiles,
                                           const WgradSplit& split)
      : offsets_(offsets_E1), split_(split), m_tiles_(m_tiles), tiles_(m_tiles * n_tiles), all_tiles_(num_experts * tiles_) {}

  /// False when there is no part of this number.
  SCATTERLM_HOST_DEVICE bool find(int number, WgradPart& part) const {
    const int num_slots = split_.num_slots;
    if (number < num_slots) {
      find_piece(number, part);
      return true;
    }
    number -= num_slots;
    if (number < all_tiles_) {
      part.expert = number / tiles_;
      set_tile(number - part.expert * tiles_, part);
      const bool divided = wgrad_blocks(offsets_, part.expert) > split_.longest_piece;
      part.kind = divided ? WgradPart::Kind::kNothing : WgradPart::Kind::kTile;
      part.row = offsets_[part.expert];
      part.row_end = divided ? part.row : offsets_[part.expert + 1];
      part.slot = part.num_pieces = part.piece = 0;
      return true;
    }
    number -= all_tiles_;
    if (number >= num_slots) return false;
    find_piece(number, part);
    part.kind = WgradPart::Kind::kSum;
    part.slot -= part.piece * tiles_;
    part.row_end = part.row;
    return true;
  }

 private:
  SCATTERLM_HOST_DEVICE void set_tile(int index, WgradPart& part) const {
    part.n_tile = index / m_tiles_;
    part.m_tile = index - part.n_tile * m_tiles_;
  }

  SCATTERLM_HOST_DEVICE void find_piece(int slot, WgradPart& part) const {
    const int piece = slot / tiles_;  // among all
    int low = 0, high = split_.num_experts - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (split_.experts[middle].first_piece <= piece)
        low = middle;
      else
        high = middle - 1;
    }
    part.kind = WgradPart::Kind::kPiece;
    part.expert = split_.experts[low].expert;
    part.slot = slot;
    part.piece = piece - split_.experts[low].first_piece;
    set_tile(slot - piece * tiles_, part);
    const int first_row = offsets_[part.expert], end = offsets_[part.expert + 1];
    const int blocks = ceil_div(end - first_row, kWgradBlockRows);
    part.num_pieces = ceil_div(blocks, split_.longest_piece);
    const int each = blocks / part.num_pieces, longer = blocks - each * part.num_pieces;  // so many have one block more
    const int begin = part.piece * each + (part.piece < longer ? part.piece : longer);
    part.row = first_row + begin * kWgradBlockRows;
    const int next = part.row + (each + (part.piece < longer ? 1 : 0)) * kWgradBlockRows;
    part.row_end = next < end ? next : end;
  }

  const int32_t* offsets_;
  const WgradSplit& split_;
  int m_tiles_, tiles_, all_tiles_;
};

}  // namespace scatterlm::kernels
