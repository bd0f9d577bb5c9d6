// FILL IN: the same answer in another form: another order, another formula. Three such files or
// more show that the judge demands only what the handout says.
#pragma once

namespace ringside::own {

inline int new_exercise(int size, int rank) {
  return rank + 1 < size ? rank + 1 : 0;
}

}  // namespace ringside::own
