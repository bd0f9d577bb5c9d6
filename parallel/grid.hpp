// Ranks in a grid: rows and columns, and any number of further axes.
//
//     sizes {2, 3}            axis 1:  0       1       2
//                  axis 0:  0       rank 0  rank 1  rank 2        the last axis varies fastest
//                           1       rank 3  rank 4  rank 5
//
//     coordinates(sizes, 4) = {1, 1}        rank_at(sizes, {1, 1}) = 4
//     members(sizes, 4, 1)  = {3, 4, 5}     a row
//     members(sizes, 4, 0)  = {1, 4}        a column
//
// MeshShape (mesh_shape.hpp) gives the axes names, DeviceMesh (device_mesh.hpp) keeps the groups.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/process_group.hpp"

namespace ringside::parallel {

// Where `rank` stands: for each axis a number from 0 to its size - 1. 0 <= rank < the product of
// all sizes.
std::vector<int> coordinates(const std::vector<int>& sizes, int rank);

// The rank that stands there: the inverse of coordinates().
int rank_at(const std::vector<int>& sizes, const std::vector<int>& coordinates);

// The ranks that differ from `rank` along `axis` only, itself included, in the order of their
// coordinates.
std::vector<int> members(const std::vector<int>& sizes, int rank, std::size_t axis);

// The group of this rank along `axis`: members() of it, in this order. All ranks of `world` make
// the call together, and it divides `world` once. `world` has as many ranks as the grid. Throws the
// errors of ProcessGroup::split.
collectives::ProcessGroup group_along(const std::vector<int>& sizes, std::size_t axis,
                                      collectives::ProcessGroup& world);

}  // namespace ringside::parallel
