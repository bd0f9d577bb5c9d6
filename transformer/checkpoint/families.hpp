// What a config.json may leave out: the families of models, and the keys that change nothing. It is
// data, in python/ringside/data/families.json, which the planner (`ringside account`)
// reads, too.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace ringside::transformer {

// What a key stands for that the config.json of such a model does not have. Members are those of
// the file: "rope_theta", "experts.per_token". Null if no default is known.
Json default_of(const std::string& model_type, std::string_view member);

// Whether this key changes no number of a model: names, token ids, how text is generated.
bool changes_nothing(const std::string& key);

}  // namespace ringside::transformer
