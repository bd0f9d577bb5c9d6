#include "collectives/selection/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/selection/calibration_file.hpp"
#include "collectives/transport/shm/shm.hpp"

namespace ringside::collectives {
namespace {

using Json = CalibrationEntry;

// A value in the file: its key, the member that it sets, and its unit in seconds.
template <class Of>
struct Field {
  const char* key;
  double Of::*value;
  double unit;
};
using PerByte = MachineCosts::PerByte;
constexpr Field<CostParameters> common_fields[] = {
    {"alpha_us", &CostParameters::alpha, 1e-6},
    {"turn_us", &CostParameters::turn, 1e-6},
    {"overhead_us", &CostParameters::overhead, 1e-6}};
constexpr Field<PerByte> byte_fields[] = {{"beta_ns_per_byte", &PerByte::beta, 1e-9},
                                          {"copy_ns_per_byte", &PerByte::copy, 1e-9},
                                          {"gamma_ns_per_byte", &PerByte::gamma, 1e-9}};

int cores_here() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

double time_in(const Json& value, const char* key) {
  const double number = value.get<double>();
  require(std::isfinite(number) && number >= 0 && number < 1e9, "{} is {}, which is no time", key,
          number);
  return number;
}

// A machine that is 100 times off the model is not described by it.
double factor_in(const Json& value) {
  const double factor = value.get<double>();
  require(factor >= 0.01 && factor <= 100, "measured_over_walked is {}: not from 0.01 to 100",
          factor);
  return factor;
}

std::vector<Correction> corrections_from(const Json& entry) {
  std::vector<Correction> corrections;
  if (!entry.contains("corrections")) return corrections;
  const Json lengths = Correction::lengths;
  require(entry.at("corrected_bytes") == lengths, "it was corrected at other buffer lengths");
  for (const Json& each : entry.at("corrections")) {
    const Algorithm& algorithm =
        find_algorithm(collective_named(each.at("collective").get<std::string>()),
                       each.at("algorithm").get<std::string>());
    Correction& correction = corrections.emplace_back();
    correction.algorithm = number_of(algorithm);
    correction.ranks = each.at("ranks").get<std::uint64_t>();
    for (std::size_t i = 0; i < lengths.size(); ++i)
      correction.factors[i] = factor_in(each.at("measured_over_walked").at(i));
  }
  return corrections;
}

MachineCosts costs_from(const Json& entry, MachineCosts costs) {
  for (const auto& field : common_fields)
    costs.common.*field.value = time_in(entry.at(field.key), field.key) * field.unit;
  const Json lengths = MachineCosts::lengths;
  require(entry.at("buffer_bytes") == lengths, "it was measured with other buffer lengths");
  for (const auto& field : byte_fields)
    for (std::size_t i = 0; i < lengths.size(); ++i)
      costs.per_byte[i].*field.value = time_in(entry.at(field.key).at(i), field.key) * field.unit;
  costs.corrections = corrections_from(entry);
  return costs;
}

// What identifies the entry of this machine for a transport.
Json key_of(std::string_view transport) {
  return calibration_key({{"transport", transport}});
}

Json entry_of(const Json& key, const MachineCosts& costs) {
  Json entry = key;
  for (const auto& field : common_fields) entry[field.key] = costs.common.*field.value / field.unit;
  entry["buffer_bytes"] = MachineCosts::lengths;
  for (const auto& field : byte_fields)
    for (const PerByte& per_byte : costs.per_byte)
      entry[field.key].push_back(per_byte.*field.value / field.unit);
  entry["corrected_bytes"] = Correction::lengths;
  entry["corrections"] = Json::array();
  for (const Correction& correction : costs.corrections) {
    const Algorithm& algorithm =
        *algorithm_numbered(static_cast<std::uint8_t>(correction.algorithm));
    entry["corrections"].push_back({{"collective", name_of(algorithm.collective)},
                                    {"algorithm", algorithm.name},
                                    {"ranks", correction.ranks},
                                    {"measured_over_walked", correction.factors}});
  }
  return entry;
}

}  // namespace

MachineCosts built_in_costs(std::string_view transport) {
  MachineCosts costs{
      .common = {.alpha = 8e-6, .overhead = 5.5e-6, .turn = 18e-6, .slice_bytes = 256 * 1024},
      .per_byte = {
          {0.2e-9, 0.08e-9, 0.02e-9}, {0.33e-9, 0.16e-9, 0.025e-9}, {1.0e-9, 0.4e-9, 0.08e-9}}};
  if (transport == "shm")
    costs = {
        .common = {.alpha = 0.7e-6,
                   .overhead = 0.42e-6,
                   .turn = 2.5e-6,
                   .slice_bytes = 128 * 1024,
                   .announced_bytes = ShmOptions{}.announced_bytes},
        .per_byte = {
            {0.1e-9, 0.06e-9, 0.025e-9}, {0.15e-9, 0.07e-9, 0.03e-9}, {0.24e-9, 0.1e-9, 0.06e-9}}};
  if (transport == "threads")
    costs = {
        .common = {.alpha = 16e-6, .overhead = 8e-6, .turn = 5e-6, .slice_bytes = 256 * 1024},
        .per_byte = {
            {0.1e-9, 0.03e-9, 0.02e-9}, {0.1e-9, 0.05e-9, 0.025e-9}, {0.42e-9, 0.18e-9, 0.08e-9}}};
  costs.common.cores = cores_here();
  return costs;
}

Calibration calibration_here() {
  Calibration here;
  for (const char* transport : {"tcp", "shm", "threads"}) {
    try {
      if (const auto entry = find_calibration(key_of(transport)))
        here.costs[transport] = costs_from(*entry, built_in_costs(transport));
    } catch (const std::exception& error) {
      here.fault = fault_of_calibration(error);
    }
  }
  return here;
}

void warn_of_fault(const Calibration& calibration) {
  if (!calibration.fault.empty()) warn_of_invalid_calibration(calibration.fault);
}

std::uint32_t checksum_of(const CostTable& measured) {
  std::string text;
  for (const auto& [transport, costs] : measured)
    text += entry_of({{"transport", transport}}, costs).dump();
  return static_cast<std::uint32_t>(hash_of_text(text));
}

MachineCosts costs_of(std::string_view transport, const CostTable& measured) {
  const auto found = measured.find(transport);
  return found != measured.end() ? found->second : built_in_costs(transport);
}

MachineCosts costs_here(std::string_view transport) {
  const Calibration here = calibration_here();
  warn_of_fault(here);
  return costs_of(transport, here.costs);
}

MachineCosts behind_link(MachineCosts costs, const Link& link) {
  costs.common.alpha += link.latency.count();
  costs.common.announced_bytes = 0;
  costs.corrections.clear();
  for (auto& bytes : costs.per_byte) bytes.beta += 1 / link.bytes_per_second;
  return costs;
}

void keep_calibration(const CostTable& measured) {
  std::vector<CalibrationRecord> records;
  for (const auto& [transport, costs] : measured)
    records.push_back({key_of(transport), entry_of(key_of(transport), costs)});
  keep_in_calibration(records);
}

}  // namespace ringside::collectives
