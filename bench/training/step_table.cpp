#include "bench/training/step_table.hpp"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using parallel::AxisEntry;

// The most of all pp coordinates.
double most(const auto& coordinates, const auto& bytes_of) {
  return std::ranges::max(coordinates | std::views::transform(bytes_of));
}

std::vector<Cell> cells_of(const StepRow& row, const StepRow& first) {
  const bool mesh = row.in_mesh();
  const auto unless_mesh = [&](Cell cell) { return mesh ? Cell() : cell; };
  const auto ms = [](std::optional<double> seconds) {
    return seconds ? Cell(*seconds * 1e3) : Cell();
  };
  const double all = static_cast<double>(size_of(row.plan.dtype)) *
                     static_cast<double>(parameter_count(row.plan.config));
  std::vector<Cell> cells{
      row.name,
      mesh ? Cell(row.plan.options.accumulate) : Cell(),
      unless_mesh(row.bucket_mb),
      ms(row.step_seconds),
      unless_mesh(ms(row.network_seconds)),
      ms(row.exposed_seconds),
      ms(row.by_formula),
      ms(row.followed),
      unless_mesh(row.calls),
      unless_mesh(row.bytes_sent),
      unless_mesh(static_cast<double>(row.bytes_sent) / all),
      row.step_seconds / first.step_seconds,
      most(row.memory, [](auto& memory) { return held(memory.after_step); }),
      most(row.memory, [](auto& memory) { return memory.peak.back(); }),
      most(row.memory, [](auto& memory) { return of(memory.peak, MemoryKind::activations); }),
      most(row.needed, [](auto& need) { return need.activations; })};
  if (!mesh) return cells;
  cells.insert(cells.end(), {row.plan.mesh.sequence_parallel, row.plan.mesh.schedule_name});
  for (const AxisEntry& entry : parallel::all_axes() | std::views::reverse)
    cells.push_back(row.sent_along.at(entry.axis));
  return cells;
}

}  // namespace

Table step_table(const std::string& title, const std::vector<StepRow>& rows,
                 const std::set<std::string>& shown) {
  const Show mb = fixed(2, 1e-6), limit = [](double number) { return fmt::format("{:g}", number); };
  Table table{
      {words(title, title, 16), number("micro-\nbatches", "micro_batches"),
       number("bucket\n(MB)", "bucket_mb", limit), number("step\n(ms)", "step_ms", fixed(1)),
       number("network\n(ms)", "communication_ms", fixed(1)),
       number("exposed\n(ms)", "exposed_ms", fixed(1)),
       number("formula\n(ms)", "model_exposed_ms", fixed(1)),
       number("followed\n(ms)", "followed_exposed_ms", fixed(1)), number("calls", "calls"),
       number("sent\n(MB)", "bytes_sent", mb), number("sent\n(n)", "sent_parameters", fixed(2)),
       number("ratio", "ratio", fixed(3)), number("held\n(MB)", "held_bytes", mb),
       number("peak\n(MB)", "peak_bytes", mb), only_in_json("peak_activations_bytes"),
       only_in_json("estimated_peak_activations_bytes")}};
  for (Column& column : table.head)
    if (column.key != title && !shown.contains(column.key)) column = only_in_json(column.key);
  if (rows.front().in_mesh()) {
    table.head.insert(table.head.end(),
                      {only_in_json("sequence_parallel"), only_in_json("schedule")});
    for (const AxisEntry& entry : parallel::all_axes() | std::views::reverse) {  // innermost first
      const bool is_in_a_mesh = std::ranges::any_of(
          rows, [&](const StepRow& row) { return row.plan.mesh.shape.size(entry.axis) > 1; });
      const std::string name(entry.name), key = name + "_bytes_sent";
      table.head.push_back(is_in_a_mesh ? number(name, key, fixed(1, 1e-6)) : only_in_json(key));
    }
  }
  for (const StepRow& row : rows) table.rows.push_back(cells_of(row, rows.front()));
  return table;
}

}  // namespace ringside::cli
