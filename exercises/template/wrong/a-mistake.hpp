// fails: result
// says: FILL IN: the sentence of the judge, with its figures
//
// FILL IN: a mistake that students make. Copy the reference to a file with the name of the mistake,
// and put it in; three such files or more. A patch (wrong/NAME.patch) will do, too.
#pragma once

namespace ringside::own {

inline int new_exercise(int size, int rank) {
  return rank + 1;
}

}  // namespace ringside::own
