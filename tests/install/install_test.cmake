function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGV}\n${said}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${FOLDER}/prefix ${FOLDER}/build)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/prefix)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${ASSIGNMENT} -B ${FOLDER}/build -DCMAKE_PREFIX_PATH=${FOLDER}/prefix)
run(${CMAKE_COMMAND} --build ${FOLDER}/build)
run(${FOLDER}/prefix/bin/ringside launch -n 3 -- ${FOLDER}/build/assignment)
# The inputs of rank r are r + 1, in 8 rows: a step changes the weight by 0.1 * 8 * 2, the mean.
foreach(rank 0 1 2)
  if(NOT said MATCHES "rank ${rank} of 3: the weight fell by 4.8000")
    message(FATAL_ERROR "expected a weight that falls by 4.8000 on all ranks:\n${said}")
  endif()
endforeach()

# No program looks for libraries in the current folder, which an empty entry of RUNPATH means.
foreach(program ${BUILD}/bin/ringside ${BUILD}/bin/ringside-bench ${FOLDER}/prefix/bin/ringside ${FOLDER}/prefix/bin/ringside-bench)
  run(readelf -d ${program})
  if(said MATCHES "R(UN)?PATH[^\n]*\\[([^\n]*:)?(:[^\n]*)?\\]")
    message(FATAL_ERROR "${program} looks for libraries in the current folder: ${CMAKE_MATCH_0}")
  endif()
endforeach()

# The program finds the kernels of the emulated device.
run(${FOLDER}/prefix/bin/ringside train --device emulated --steps 1 --layers 1 --sequence 8 --batch 1)

# A C program, by CMake, and by pkg-config where that is installed.
set(programs from_c)
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  list(APPEND programs by_pkg_config)
  run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${FOLDER}/prefix/lib/pkgconfig sh -c
    "cc ${ASSIGNMENT}/from_c.c -o ${FOLDER}/build/by_pkg_config $(pkg-config --cflags --libs ringside)")
endif()
foreach(program ${programs})
  run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${FOLDER}/prefix/lib ${FOLDER}/build/${program})
  if(NOT said MATCHES "version [0-9]+ of the C interface: the sum of one rank is 3")
    message(FATAL_ERROR "expected the sum 3:\n${said}")
  endif()
endforeach()

# The manual page and the completions are where other programs look for them.
foreach(document man/man1/ringside.1 bash-completion/completions/ringside zsh/site-functions/_ringside
                 fish/vendor_completions.d/ringside.fish doc/ringside/LICENSE)
  file(READ ${FOLDER}/prefix/share/${document} text)
  if(NOT text MATCHES "postmortem|help --as words|Apache")
    message(FATAL_ERROR "share/${document} neither knows the command postmortem nor asks the program for its words")
  endif()
endforeach()

# A mesh of eight ranks takes the steps of one process.
run(${FOLDER}/prefix/bin/ringside launch -n 1 -- ${FOLDER}/build/train_on_mesh)
string(REGEX MATCHALL "step [0-9]: loss [0-9.]+" alone "${said}")
list(LENGTH alone steps)
if(NOT steps EQUAL 4)
  message(FATAL_ERROR "expected the losses of 4 steps:\n${said}")
endif()
run(${FOLDER}/prefix/bin/ringside launch -n 8 -- ${FOLDER}/build/train_on_mesh pp=2,dp=2,tp=2)
string(REGEX MATCHALL "step [0-9]: loss [0-9.]+" losses "${said}")
if(NOT losses STREQUAL alone)
  message(FATAL_ERROR "the mesh has the losses\n${losses}\nand one process\n${alone}")
endif()
