// A perfect Connect Four player: what every move of a position is worth.
//
//   connect_four TABLE_BITS < positions > values
//
// A position is a line with two integers, the discs of the player to move and those of the other, as in the states of
// `board:connect_four`: bit 8 * row + column, the bottom row first. The answer is a line of seven numbers, one for each
// column: 0 for a draw, n for a win and -n for a loss, the larger the sooner (the discs that the winner has left, and
// one), and -100 where the column is full.
//
// Inside, a column is seven bits, its lowest cell first; the seventh is always empty, so that no line runs over the
// edge. The search is a null-window alpha-beta with a transposition table. It never looks at moves that lose at once,
// and tries those first that make the most threats.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Cells = std::uint64_t;

constexpr int kWidth = 7, kHeight = 6, kCells = kWidth * kHeight, kStride = kHeight + 1, kFull = -100;
constexpr std::array<int, kWidth> kFromCentre = {3, 2, 4, 1, 5, 0, 6};

constexpr Cells bottom_of(int column) { return Cells{1} << (column * kStride); }
constexpr Cells column_of(int column) { return ((Cells{1} << kHeight) - 1) << (column * kStride); }

constexpr Cells all_bottoms() {
  Cells cells = 0;
  for (int column = 0; column < kWidth; ++column) cells |= bottom_of(column);
  return cells;
}

constexpr Cells kBottom = all_bottoms();
constexpr Cells kBoard = kBottom * ((Cells{1} << kHeight) - 1);

// Empty cells where one more disc makes four in a line.
Cells threats(Cells own, Cells taken) {
  Cells cells = (own << 1) & (own << 2) & (own << 3);  // upwards
  for (int step : {kStride - 1, kStride, kStride + 1}) {
    Cells pair = (own << step) & (own << 2 * step);
    cells |= pair & (own << 3 * step);
    cells |= pair & (own >> step);
    pair = (own >> step) & (own >> 2 * step);
    cells |= pair & (own << step);
    cells |= pair & (own >> 3 * step);
  }
  return cells & (kBoard ^ taken);
}

struct Position {
  Cells own = 0, taken = 0;  // the discs of the player to move, and of both
  int moves = 0;

  Cells open() const { return (taken + kBottom) & kBoard; }
  Cells key() const { return own + taken; }
  bool wins_now() const { return threats(own, taken) & open(); }

  // Moves after which the other one does not win at once.
  Cells safe_moves() const {
    Cells possible = open();
    const Cells of_other = threats(own ^ taken, taken), forced = possible & of_other;
    if (forced) {
      if (forced & (forced - 1)) return 0;
      possible = forced;
    }
    return possible & ~(of_other >> 1);
  }

  Position after(Cells move) const { return {own ^ taken, taken | move, moves + 1}; }
};

// Upper bounds of values; the key is kept whole, so no two positions are taken for each other.
class Table {
 public:
  explicit Table(int bits) : entries_(std::size_t{1} << bits), shift_(64 - bits) {}

  int find(Cells key) const {
    const Cells entry = entries_[place(key)];
    return entry >> 8 == key ? static_cast<int>(entry & 0xff) - 64 : kFull;
  }
  void keep(Cells key, int bound) { entries_[place(key)] = key << 8 | static_cast<Cells>(bound + 64); }

 private:
  std::size_t place(Cells key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }

  std::vector<Cells> entries_;
  int shift_;
};

class Solver {
 public:
  explicit Solver(int table_bits) : table_(table_bits) {}

  // With best play of both.
  int value(const Position& position) {
    if (position.wins_now()) return (kCells + 1 - position.moves) / 2;
    int low = -(kCells - position.moves) / 2, high = (kCells + 1 - position.moves) / 2;
    while (low < high) {  // whether it is won or lost is asked first, then how soon
      int middle = low + (high - low) / 2;
      if (middle <= 0 && low / 2 < middle) middle = low / 2;
      else if (middle >= 0 && high / 2 > middle) middle = high / 2;
      const int found = negamax(position, middle, middle + 1);
      (found <= middle ? high : low) = found;
    }
    return low;
  }

 private:
  // Nobody wins with the next move.
  int negamax(const Position& position, int low, int high) {
    const Cells moves = position.safe_moves();
    if (!moves) return -(kCells - position.moves) / 2;
    if (position.moves >= kCells - 2) return 0;
    if (const int least = -(kCells - 2 - position.moves) / 2; low < least && (low = least) >= high) return low;
    int most = (kCells - 1 - position.moves) / 2;
    const Cells key = position.key();
    if (const int bound = table_.find(key); bound != kFull && bound < most) most = bound;
    if (high > most && low >= (high = most)) return high;

    std::array<Cells, kWidth> order;
    std::array<int, kWidth> scores;
    int num = 0;
    for (int column : kFromCentre) {
      const Cells move = moves & column_of(column);
      if (!move) continue;
      const int score = __builtin_popcountll(threats(position.own | move, position.taken | move));
      int at = num++;
      for (; at > 0 && scores[at - 1] < score; --at) order[at] = order[at - 1], scores[at] = scores[at - 1];
      order[at] = move, scores[at] = score;
    }
    for (int at = 0; at < num; ++at) {
      const int found = -negamax(position.after(order[at]), -high, -low);
      if (found >= high) return found;
      if (found > low) low = found;
    }
    table_.keep(key, low);
    return low;
  }

  Table table_;
};

Cells from_rows(std::uint64_t rows) {
  Cells cells = 0;
  for (int row = 0; row < kHeight; ++row)
    for (int column = 0; column < kWidth; ++column)
      if (rows >> (8 * row + column) & 1) cells |= bottom_of(column) << row;
  return cells;
}

}  // namespace

int main(int count, char** arguments) {
  const int bits = count > 1 ? std::atoi(arguments[1]) : 23;
  if (bits < 10 || bits > 30) {
    std::fprintf(stderr, "connect_four: the table has 2^10 to 2^30 entries, not 2^%d\n", bits);
    return 2;
  }
  Solver solver(bits);
  unsigned long long own, other;
  while (std::scanf("%llu %llu", &own, &other) == 2) {
    Position position{from_rows(own), from_rows(own | other), 0};
    position.moves = __builtin_popcountll(position.taken);
    for (int column = 0; column < kWidth; ++column) {
      const Cells move = position.open() & column_of(column);
      int value = kFull;
      if (move & threats(position.own, position.taken)) value = (kCells + 1 - position.moves) / 2;
      else if (move) value = position.moves == kCells - 1 ? 0 : -solver.value(position.after(move));
      std::printf("%d%c", value, column < kWidth - 1 ? ' ' : '\n');
    }
    std::fflush(stdout);
  }
  return 0;
}
