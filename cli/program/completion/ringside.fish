# fish completion of ringside; made by `ringside help --as fish`.
function __ringside_next
  set -l before (commandline -opc)
  $before[1] help --as words -- $before[2..-1] 2>/dev/null
end
complete -c ringside -n "__ringside_next | string match -qrv '^-'" -f
complete -c ringside -a '(__ringside_next)'
