// Data parallelism with r (n + m) numbers for a matrix of n x m: PowerSGD sends two thin factors
// instead of the gradient, and adds what they miss to the gradient of the next step.
//
//     M = g + error                       [n, m]    of every rank
//     P = mean over ranks of M Q          [n, r]    the first all-reduce
//     P = an orthonormal basis of P       [n, r]    the same bits on every rank
//     Q = mean over ranks of M^T P        [m, r]    the second all-reduce
//     g = P Q^T,  error = M - g                     Q is kept: it starts the next step
//
// A training step takes one step of the power method: the factors follow the largest singular
// vectors of the mean gradient, which change slowly. The product M^T P is linear in M, so P Q^T is
// a projection of the mean of all M: no rank decompresses what the others sent. With r = min(n, m)
// the projection takes nothing away.
//
// Parameters with one dimension (norms, biases) travel whole in the first call. Bytes that a rank
// sends: 2 (p-1)/p times those of sum r (n + m) + (numbers in vectors). Memory: one more copy of
// the matrices' gradients.
//
// Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for
// distributed optimization", NeurIPS 2019, algorithms 1 and 2.
#pragma once

#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

class PowerSGD {
 public:
  static constexpr int default_rank = 4;

  // As Flat; gradients are fp32 or fp64, on the CPU. A matrix with fewer than `rank` rows or
  // columns gets factors of that many columns.
  PowerSGD(const autograd::Module& module, collectives::ProcessGroup& group,
           int rank = default_rank);

  // Replaces every gradient by the projection of its mean over all ranks. Parameters without a
  // gradient as in Flat::finish(); they keep their error.
  void finish();

  // Numbers that travel in a step, once through both all-reduces.
  std::int64_t numbers_sent() const;
  // What this rank still has to send, of each parameter with two dimensions or more.
  std::vector<autograd::NamedTensor> errors() const;

 private:
  struct Parameter {
    autograd::NamedTensor named;
    autograd::Tensor error, q;  // [n, m], [m, r]; of vectors undefined
    bool is_matrix() const { return q.defined(); }
    // Adds the gradient to `error`, which then is M. Returns M Q.
    autograd::Tensor left_factor() const;
    // Returns M^T P.
    autograd::Tensor right_factor(const autograd::Tensor& p) const;
    // The gradient becomes P Q^T, `error` M - P Q^T, and `q` Q, which is `right`.
    void replace_gradient(const autograd::Tensor& p, const autograd::Tensor& right) const;
  };
  void restart_column(const Parameter& parameter, std::int64_t column);
  std::vector<autograd::Tensor> mean_of(const std::vector<autograd::Tensor>& parts,
                                        const std::string& label) const;

  std::vector<Parameter> parameters_;
  collectives::ProcessGroup& group_;
  std::uint64_t restarts_ = 0;
};

// Makes the columns of `p`, [n, r], orthonormal, from the first to the last (modified Gram-Schmidt,
// each column twice). A column that depends on those before becomes zero. Returns their numbers.
std::vector<std::int64_t> make_orthonormal(const autograd::Tensor& p);

}  // namespace ringside::ddp
