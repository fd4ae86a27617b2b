//! `/stats/summary`.

use super::*;

#[test]
fn stats_summary_has_all_measurements() {
    expect![[r#"
        {
          "node": {
            "cpu": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 11
                },
                "some": {
                  "avg10": 87.62,
                  "avg300": 14.82,
                  "avg60": 39.61,
                  "total": 73505000
                }
              },
              "time": "2023-11-14T22:16:40Z",
              "usageCoreNanoSeconds": 1500000000,
              "usageNanoCores": 1000
            },
            "fs": {
              "availableBytes": 400,
              "capacityBytes": 1000,
              "inodes": 100,
              "inodesFree": 60,
              "inodesUsed": 40,
              "time": "2023-11-14T22:16:40Z",
              "usedBytes": 500
            },
            "io": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                },
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "time": "2023-11-14T22:16:40Z"
            },
            "memory": {
              "availableBytes": 1073722824,
              "majorPageFaults": 3,
              "pageFaults": 30,
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                },
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "rssBytes": 8192,
              "time": "2023-11-14T22:16:40Z",
              "usageBytes": 20000,
              "workingSetBytes": 19000
            },
            "network": {
              "interfaces": [
                {
                  "name": "eth0",
                  "rxBytes": 10,
                  "rxErrors": 0,
                  "txBytes": 20,
                  "txErrors": 0
                }
              ],
              "name": "eth0",
              "rxBytes": 10,
              "rxErrors": 0,
              "time": "2023-11-14T22:16:40Z",
              "txBytes": 20,
              "txErrors": 0
            },
            "nodeName": "node",
            "rlimit": {
              "curproc": 310,
              "maxpid": 32768,
              "time": "2023-11-14T22:16:40Z"
            },
            "runtime": {
              "containerFs": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 2,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 50
              },
              "imageFs": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 2,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 300
              }
            },
            "startTime": "2023-11-14T22:13:20Z",
            "swap": {
              "swapAvailableBytes": 960,
              "swapUsageBytes": 64,
              "time": "2023-11-14T22:16:40Z"
            },
            "systemContainers": [
              {
                "cpu": {
                  "psi": {
                    "full": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    },
                    "some": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    }
                  },
                  "time": "2023-11-14T22:16:40Z",
                  "usageCoreNanoSeconds": 1500000001
                },
                "io": {
                  "psi": {
                    "full": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    },
                    "some": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    }
                  },
                  "time": "2023-11-14T22:16:40Z"
                },
                "memory": {
                  "availableBytes": 67089864,
                  "majorPageFaults": 3,
                  "pageFaults": 30,
                  "psi": {
                    "full": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    },
                    "some": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    }
                  },
                  "rssBytes": 8192,
                  "time": "2023-11-14T22:16:40Z",
                  "usageBytes": 20000,
                  "workingSetBytes": 19000
                },
                "name": "kubelet",
                "startTime": "2023-11-14T22:13:20Z",
                "swap": {
                  "swapAvailableBytes": 36,
                  "swapUsageBytes": 64,
                  "time": "2023-11-14T22:16:40Z"
                }
              }
            ]
          },
          "pods": [
            {
              "containers": [
                {
                  "cpu": {
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "time": "2023-11-14T22:16:40Z",
                    "usageCoreNanoSeconds": 1500000001,
                    "usageNanoCores": 250
                  },
                  "io": {
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "time": "2023-11-14T22:16:40Z"
                  },
                  "logs": {
                    "availableBytes": 400,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 60,
                    "inodesUsed": 2,
                    "time": "2023-11-14T22:16:40Z",
                    "usedBytes": 100
                  },
                  "memory": {
                    "availableBytes": 67089864,
                    "majorPageFaults": 3,
                    "pageFaults": 30,
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "rssBytes": 8192,
                    "time": "2023-11-14T22:16:40Z",
                    "usageBytes": 20000,
                    "workingSetBytes": 19000
                  },
                  "name": "main",
                  "rootfs": {
                    "availableBytes": 400,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 60,
                    "inodesUsed": 3,
                    "time": "2023-11-14T22:16:40Z",
                    "usedBytes": 7
                  },
                  "startTime": "2023-11-14T22:15:00Z",
                  "swap": {
                    "swapAvailableBytes": 36,
                    "swapUsageBytes": 64,
                    "time": "2023-11-14T22:16:40Z"
                  }
                }
              ],
              "cpu": {
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "time": "2023-11-14T22:16:40Z",
                "usageCoreNanoSeconds": 3000000002,
                "usageNanoCores": 251
              },
              "ephemeral-storage": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 9,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 1117
              },
              "io": {
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "time": "2023-11-14T22:16:40Z"
              },
              "memory": {
                "majorPageFaults": 6,
                "pageFaults": 60,
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "rssBytes": 16384,
                "time": "2023-11-14T22:16:40Z",
                "usageBytes": 40000,
                "workingSetBytes": 38000
              },
              "network": {
                "interfaces": [
                  {
                    "name": "eth0",
                    "rxBytes": 10,
                    "rxErrors": 0,
                    "txBytes": 20,
                    "txErrors": 0
                  }
                ],
                "name": "eth0",
                "rxBytes": 10,
                "rxErrors": 0,
                "time": "2023-11-14T22:16:40Z",
                "txBytes": 20,
                "txErrors": 0
              },
              "podRef": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-1"
              },
              "process_stats": {
                "process_count": 4
              },
              "startTime": "2023-11-14T22:14:50Z",
              "swap": {
                "swapUsageBytes": 128,
                "time": "2023-11-14T22:16:40Z"
              },
              "volume": [
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "data",
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                },
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "fast",
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                },
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "kept",
                  "pvcRef": {
                    "name": "claim",
                    "namespace": "default"
                  },
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&summary_of(&node(), Some(&disks())));
}

#[test]
fn stats_summary_only_cpu_and_memory_has_nothing_else() {
    expect![[r#"
        {
          "node": {
            "cpu": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 11
                },
                "some": {
                  "avg10": 87.62,
                  "avg300": 14.82,
                  "avg60": 39.61,
                  "total": 73505000
                }
              },
              "time": "2023-11-14T22:16:40Z",
              "usageCoreNanoSeconds": 1500000000,
              "usageNanoCores": 1000
            },
            "memory": {
              "availableBytes": 1073722824,
              "majorPageFaults": 3,
              "pageFaults": 30,
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                },
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "rssBytes": 8192,
              "time": "2023-11-14T22:16:40Z",
              "usageBytes": 20000,
              "workingSetBytes": 19000
            },
            "nodeName": "node",
            "startTime": "2023-11-14T22:13:20Z",
            "swap": {
              "swapAvailableBytes": 960,
              "swapUsageBytes": 64,
              "time": "2023-11-14T22:16:40Z"
            },
            "systemContainers": [
              {
                "cpu": {
                  "psi": {
                    "full": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    },
                    "some": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    }
                  },
                  "time": "2023-11-14T22:16:40Z",
                  "usageCoreNanoSeconds": 1500000001
                },
                "memory": {
                  "availableBytes": 67089864,
                  "majorPageFaults": 3,
                  "pageFaults": 30,
                  "psi": {
                    "full": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    },
                    "some": {
                      "avg10": 0,
                      "avg300": 0,
                      "avg60": 0,
                      "total": 0
                    }
                  },
                  "rssBytes": 8192,
                  "time": "2023-11-14T22:16:40Z",
                  "usageBytes": 20000,
                  "workingSetBytes": 19000
                },
                "name": "kubelet",
                "startTime": "2023-11-14T22:13:20Z",
                "swap": {
                  "swapAvailableBytes": 36,
                  "swapUsageBytes": 64,
                  "time": "2023-11-14T22:16:40Z"
                }
              }
            ]
          },
          "pods": [
            {
              "containers": [
                {
                  "cpu": {
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "time": "2023-11-14T22:16:40Z",
                    "usageCoreNanoSeconds": 1500000001,
                    "usageNanoCores": 250
                  },
                  "memory": {
                    "availableBytes": 67089864,
                    "majorPageFaults": 3,
                    "pageFaults": 30,
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "rssBytes": 8192,
                    "time": "2023-11-14T22:16:40Z",
                    "usageBytes": 20000,
                    "workingSetBytes": 19000
                  },
                  "name": "main",
                  "startTime": "2023-11-14T22:15:00Z",
                  "swap": {
                    "swapAvailableBytes": 36,
                    "swapUsageBytes": 64,
                    "time": "2023-11-14T22:16:40Z"
                  }
                }
              ],
              "cpu": {
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "time": "2023-11-14T22:16:40Z",
                "usageCoreNanoSeconds": 3000000002,
                "usageNanoCores": 251
              },
              "memory": {
                "majorPageFaults": 6,
                "pageFaults": 60,
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "rssBytes": 16384,
                "time": "2023-11-14T22:16:40Z",
                "usageBytes": 40000,
                "workingSetBytes": 38000
              },
              "podRef": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-1"
              },
              "startTime": "2023-11-14T22:14:50Z",
              "swap": {
                "swapUsageBytes": 128,
                "time": "2023-11-14T22:16:40Z"
              }
            }
          ]
        }"#]]
    .assert_eq(&summary_of(&node(), None));
}

#[test]
fn the_summary_of_a_node_without_pods_is_json() {
    let mut node = node();
    node.pods.clear();
    assert!(summary_of(&node, None).contains("\"pods\": []"));
}

/// The path of each value: `.node.cpu.time`, `.pods[].containers[].name`.
fn fields(value: &serde_json::Value, path: &str, found: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| fields(value, &format!("{path}.{key}"), found));
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| fields(value, &format!("{path}[]"), found));
        }
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {
            found.insert(path.to_owned());
        }
    }
}

/// Recorded from the Go kubelet 1.36.2 on cgroup v1 with a kernel without pressure stall information.
const RECORDED_FIELDS: &str = include_str!("recorded_summary_fields.txt");

#[test]
fn stats_summary_has_the_fields_of_the_go_kubelet_psi_among_them() {
    let mut sample = node();
    sample.root.cgroup.pressure = None;
    sample.system[0].placed.rate = Some(1);
    sample.pods[0].own = Some(sample.pods[0].containers[0].placed.clone());
    let value = serde_json::from_str(&summary_of(&sample, Some(&disks()))).expect("JSON");
    let mut ours = std::collections::BTreeSet::new();
    fields(&value, "", &mut ours);
    let missing: Vec<&str> = RECORDED_FIELDS.lines().filter(|field| !ours.contains(*field)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    // The recording has no volumes, because they are measured once a minute, and no limit of swap on these cgroups.
    let is_expected = |field: &&String| {
        field.starts_with(".pods[].volume[].") || field.ends_with(".swap.swapAvailableBytes")
    };
    let recorded: Vec<&str> = RECORDED_FIELDS.lines().collect();
    let more: Vec<_> =
        ours.iter().filter(|f| !recorded.contains(&f.as_str())).filter(|f| !is_expected(f)).collect();
    assert_eq!(more, Vec::<&String>::new());
}
