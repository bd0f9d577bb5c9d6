// State files: their names in a checkpoint directory, and which of them may be deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ringside::training {

// A name for the state after `step` that no file in `directory` has yet.
std::string new_state_name(const std::filesystem::path& directory, std::int64_t step);

// Whether `name` is a possible name of a state file: "training-*.safetensors", without a path.
bool is_state_name(const std::string& name);

// Deletes all state files but `state_in_use`, and the partial files of processes that were killed
// while they saved. Ignores errors: files that remain do no harm.
void remove_old_files(const std::filesystem::path& directory, const std::string& state_in_use);

}  // namespace ringside::training
