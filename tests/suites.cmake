# Writes what ctest runs: one process per suite of steady_tests, named after it, or one per test for
# the suites that ALONE matches. Labels: the folder of the suite's source below tests/, and "slow"
# for the suites that SLOW matches.
#   cmake -DPROGRAM=... -DSOURCES=... -DOUTPUT=... -DALONE=REGEX -DSLOW=REGEX -P suites.cmake
execute_process(COMMAND ${PROGRAM} --gtest_list_tests --gtest_output=json:${OUTPUT}.json
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(READ ${OUTPUT}.json lines)
file(REMOVE ${OUTPUT}.json)
# A line per field: the name of a suite stands before its list of tests, a test's before its file.
string(REGEX REPLACE "[][;]" " " lines "${lines}")
string(REPLACE "\n" ";" lines "${lines}")

set(text "")
function(write_test name filter file)
  set(labels "")
  if(file MATCHES "tests/(.*)/[^/]*$")
    string(REPLACE "/" ";" parts "${CMAKE_MATCH_1}")
    list(APPEND labels ${parts})
  endif()
  if(name MATCHES "^(${SLOW})([.]|$)")
    list(APPEND labels slow)
    set(cost " COST 1000")  # first, so that nothing waits for them at the end
  endif()
  string(APPEND text "add_test([==[${name}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${filter}]==])\n"
         "set_tests_properties([==[${name}]==] PROPERTIES LABELS [==[${labels}]==]${cost})\n")
  set(text "${text}" PARENT_SCOPE)
endfunction()

set(suite "")
set(name "")
foreach(line IN LISTS lines)
  if(line MATCHES "\"name\": \"(.*)\"")
    string(REPLACE "\\/" "/" name "${CMAKE_MATCH_1}")
  elseif(line MATCHES "\"testsuite\": ")
    set(suite "${name}")
    set(begun FALSE)
  elseif(line MATCHES "\"file\": \"(.*)\"")
    string(REPLACE "\\/" "/" file "${CMAKE_MATCH_1}")
    if(suite MATCHES "^(${ALONE})$")
      write_test("${suite}.${name}" "${suite}.${name}" "${file}")
    elseif(NOT begun)
      set(begun TRUE)
      write_test("${suite}" "${suite}.*" "${file}")
    endif()
  endif()
endforeach()
file(WRITE ${OUTPUT} "${text}")
