// The names of CLI11 that headers mention. Its own header takes five seconds to compile, and most
// sources that include an option's header need no more than these names, and that of our Options.
#pragma once

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace ringside::cli {
class Options;
}  // namespace ringside::cli
