// The names of CLI11 that headers mention. Its own header takes five seconds to compile, and most
// sources that include an option's header need no more than these names.
#pragma once

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI
