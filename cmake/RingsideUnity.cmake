# Joined sources: the compiler reads the headers once for several sources of one folder, which halves
# the time of those that include large ones, in a debug build, too. A debugger still knows each source by
# its name. OFF: a changed source compiles alone.
option(RINGSIDE_UNITY "Compile up to eight sources of a folder as one unit" ON)

# These stand alone: the clinic links an edited one in place of the library's, and compiles again those that
# include an edited header. So does tests/debugger, which needs debug information.
set(stand_alone
  collectives/algorithms/catalogue.cpp
  autograd/tensor/tensor.cpp
  collectives/calls/call_queue.cpp
  collectives/execution/watchdog.cpp
  collectives/execution/schedule_backend.cpp
  collectives/execution/simple_executor.cpp
  collectives/process_group.cpp
  collectives/proof/lockstep.cpp
  collectives/transport/tcp.cpp
  ddp/bucketed.cpp
  zero/zero3.cpp)
# These use a name of another source of their folder: a helper, a test's fixture. Kernels stand alone so that
# what the compiler makes of one does not depend on others (ringside_stands_alone).
list(APPEND stand_alone
  autograd/ops/reduce.cpp
  cli/pictures/player/cost_lines.cpp
  cli/pictures/player/player_data.cpp
  collectives/bootstrap/rendezvous/mesh.cpp
  exercises/judge/ddp/order_of_calls.cpp
  exercises/judge/gpu/fiber.cpp
  tests/autograd/engine/deferred_gradients_test.cpp
  tests/autograd/ops/ops_test.cpp
  tests/bench/train_test.cpp
  tests/cli/commands/step_prove_test.cpp
  tests/cli/pictures/player_test.cpp
  tests/cli/pictures/schedule_picture_test.cpp
  tests/collectives/diagnostics/flight_recorder_test.cpp
  tests/collectives/point_to_point_test.cpp
  tests/collectives/selection/cost_model_test.cpp
  tests/parallel/differentiable_test.cpp
  tests/parallel/tensor/linear_test.cpp
  tests/parallel/tensor/vocabulary_test.cpp
  tests/training/memory_test.cpp
  tests/training/trainer_test.cpp
  tests/transformer/checkpoint/safetensors_test.cpp
  tests/transformer/inference/generation_test.cpp)
list(APPEND stand_alone base/json.cpp)  # the only one that includes nlohmann-json
file(GLOB descriptions CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exercises/*/exercise.json)
foreach(description ${PROJECT_SOURCE_DIR}/exercises/clinic/bugs.json ${descriptions})
  file(READ ${description} text)
  # Only what is cut or edited: texts in it also name headers that nearly all sources include.
  string(REGEX MATCHALL "\"file\": *\"[a-z0-9_/]+[.][ch]pp\"" named "${text}")
  list(TRANSFORM named REPLACE "\"file\": *\"(.*)\"" "\\1")
  list(APPEND stand_alone ${named})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${description})
endforeach()
list(REMOVE_DUPLICATES stand_alone)
set(edited_headers ${stand_alone})
list(FILTER edited_headers INCLUDE REGEX "/.*[.]hpp$")

# ringside_stands_alone(SOURCE RESULT): SOURCE is relative to the root of the project.
function(ringside_stands_alone source result)
  set(${result} FALSE PARENT_SCOPE)
  if(source IN_LIST stand_alone OR source MATCHES "^autograd/kernels/")
    set(${result} TRUE PARENT_SCOPE)
  elseif(NOT source MATCHES "^(tests|exercises)/")
    file(STRINGS ${PROJECT_SOURCE_DIR}/${source} includes REGEX "^#include \"")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"(.*)\"" "\\1" include "${include}")
      if(include IN_LIST edited_headers)
        set(${result} TRUE PARENT_SCOPE)
      endif()
    endforeach()
  endif()
endfunction()

# ringside_join_sources(TARGET SOURCES...): joins the sources of each folder, eight at most, in their
# order. A source in another place of the list or in another folder does not move the borders.
function(ringside_join_sources target)
  if(NOT RINGSIDE_UNITY)
    return()
  endif()
  foreach(source ${ARGN})
    if(source MATCHES "[$]<" OR IS_ABSOLUTE ${source} AND NOT source MATCHES "^${PROJECT_SOURCE_DIR}/")
      continue()
    endif()
    get_filename_component(place ${source} ABSOLUTE)
    file(RELATIVE_PATH place ${PROJECT_SOURCE_DIR} ${place})
    if(place MATCHES "^build/")
      continue()
    endif()
    ringside_stands_alone(${place} alone)
    if(alone)
      continue()
    endif()
    get_filename_component(folder ${place} DIRECTORY)
    string(MAKE_C_IDENTIFIER ${folder} folder)
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    math(EXPR unit "(${count_${folder}} - 1) / 8")
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder}_${unit})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
