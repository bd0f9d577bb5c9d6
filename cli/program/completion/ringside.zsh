#compdef ringside
# zsh completion of ringside; made by `ringside help --as zsh`.
local -a next subcommands options
next=("${(@f)$(${~words[1]} help --as words -- "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
next=("${(@)next/$'\t'/:}")
options=(${(M)next:#-*}) subcommands=(${next:#-*})
if [[ $PREFIX == -* ]]; then
  _describe -o option options
elif (( $#subcommands )); then
  _describe command subcommands
else
  _files
fi
