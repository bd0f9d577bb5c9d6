// The parallel forms of ddp/ behind the interface by which the trainer knows them: the one place where the two meet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "transformer/parallel_form.hpp"

namespace ringside::cli {

// What --parallel takes, in the order in which a reader should meet them: single, naive, flat.
std::vector<std::string> form_names();

// The form of this name over `group`, which must outlive it. `single` asks for a group of one. Throws Error naming the known ones.
std::unique_ptr<transformer::ParallelForm> make_form(const std::string& name, collectives::ProcessGroup& group);

}  // namespace ringside::cli
