// FILL IN: the reference. Students get this file without the bodies that exercise.json cuts out.
// Namespace: that of the folder of Ringside whose names you use, such as ringside::collectives.
#pragma once

namespace ringside::own {

// FILL IN: what it returns, with units and shapes; the paper and section it is from.
inline int new_exercise(int size, int rank) {
  return (rank + 1) % size;
}

}  // namespace ringside::own
