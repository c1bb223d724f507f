"""Copies a directory without directories to or from a bucket: boto3's transfer manager."""

import os
import sys

import boto3
from botocore.config import Config
from s3transfer.manager import TransferConfig, TransferManager

direction, bucket, directory, channels = sys.argv[1:]
channels = int(channels)
client = boto3.client("s3", config=Config(max_pool_connections=channels))
with TransferManager(client, TransferConfig(max_request_concurrency=channels)) as manager:
    if direction == "put":
        names = os.listdir(directory)
        copies = [manager.upload(os.path.join(directory, name), bucket, name) for name in names]
    else:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        names = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        copies = [manager.download(bucket, name, os.path.join(directory, name)) for name in names]
    for copy in copies:
        copy.result()
