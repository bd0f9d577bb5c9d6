# Fuzzes each reader of checkpoint files for 1.5 seconds (safetensors.hpp).
foreach(target safetensors safetensors_config safetensors_index)
  add_executable(fuzz_${target} fuzz/${target}_target.cpp fuzz/safetensors_driver.cpp)
  target_link_libraries(fuzz_${target} PRIVATE ringside::transformer ringside::base fmt::fmt)
  add_test(NAME "fuzz: ${target}" COMMAND fuzz_${target} 1.5)
  set_tests_properties("fuzz: ${target}" PROPERTIES TIMEOUT 60 LABELS fuzz)
endforeach()

# The same for the other files that Ringside reads and others may have written.
foreach(target tokenizer flight calibration)
  add_executable(fuzz_${target} fuzz/${target}_target.cpp fuzz/safetensors_driver.cpp)
  target_link_libraries(fuzz_${target} PRIVATE ringside::transformer ringside::collectives fmt::fmt)
  add_test(NAME "fuzz: ${target}" COMMAND fuzz_${target} 1.5)
  set_tests_properties("fuzz: ${target}" PROPERTIES TIMEOUT 60 LABELS fuzz)
endforeach()
